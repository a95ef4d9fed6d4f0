"""Define the constants of the pod resources API.

Go: pkg/kubelet/apis/podresources/constants.go
"""

from __future__ import annotations

# SOCKET is the name of the socket without its suffix.
SOCKET = "kubelet"
# The server accepts DEFAULT_QPS requests a second on average, and DEFAULT_BURST_TOKENS at once.
DEFAULT_QPS = 100
DEFAULT_BURST_TOKENS = 10
