"""The Container Runtime Interface as the kubelet sees it.

`apis` names the calls, `remote` speaks them to a runtime's socket, `testing` answers them in this process.

Go: pkg/kubelet/cri
"""
