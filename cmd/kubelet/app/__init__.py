"""Making a kubelet process out of a command line.

Go: cmd/kubelet/app
"""
