"""The kubelet's part in pod networking.

Go: pkg/kubelet/network
"""
