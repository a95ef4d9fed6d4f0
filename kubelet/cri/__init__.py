"""The Container Runtime Interface as the kubelet sees it.

`apis` names the calls, `remote` speaks them to a runtime's socket, `testing` answers them in this process.

Go: pkg/kubelet/cri in 1.27
"""

import os

# gRPC's C core writes to standard error in a format of its own, also what is no fault: that a runtime which
# stops says good-bye. What matters reaches the log through the errors of the calls.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
