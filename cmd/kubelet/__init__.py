"""Provide the kubelet's executable.

Go: cmd/kubelet
"""
