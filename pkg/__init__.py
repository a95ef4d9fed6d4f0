"""Contain what the kubelet imports from outside pkg/kubelet, under the names that it has in Go."""
