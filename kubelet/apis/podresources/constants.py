"""Define the constants of the pod resources API.

Go: pkg/kubelet/apis/podresources/constants.go
"""

from __future__ import annotations

# The name of the socket without its suffix.
SOCKET = "kubelet"
# The rate limit: requests in a second, and requests at once.
DEFAULT_QPS = 100
DEFAULT_BURST_TOKENS = 10
