"""Define the Container Runtime Interface (CRI), and call a runtime through it.

`apis` defines the calls, `remote` sends them to a runtime's socket, and `testing` has fakes.

Go: pkg/kubelet/cri in 1.27
"""

import os

# gRPC's C core writes to standard error in its own format, even for normal events such as the end of a connection to a
# runtime that stops. The errors of the calls carry what the log needs.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
