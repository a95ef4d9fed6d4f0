"""Define the constants of the pod resources API.

Go: pkg/kubelet/apis/podresources/constants.go
"""

from __future__ import annotations

# SOCKET is the name of the socket without its suffix.
SOCKET = "kubelet"
# The server accepts this number of requests in a second, and at once.
DEFAULT_QPS = 100
DEFAULT_BURST_TOKENS = 10
