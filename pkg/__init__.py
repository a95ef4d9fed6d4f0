"""What the kubelet imports from outside pkg/kubelet, under the names it has in Go."""
