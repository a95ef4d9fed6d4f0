"""What the kubelet uses of k8s.io/client-go, under the names it has there."""
