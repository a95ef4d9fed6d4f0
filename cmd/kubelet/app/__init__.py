"""Make a kubelet process from a command line.

Go: cmd/kubelet/app
"""
