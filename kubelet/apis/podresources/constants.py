"""Go: pkg/kubelet/apis/podresources/constants.go"""

from __future__ import annotations

# Name of the socket, without its suffix.
SOCKET = "kubelet"
# Nobody has reason to ask more often than this many times a second, and so often at once.
DEFAULT_QPS = 100
DEFAULT_BURST_TOKENS = 10
