"""Collect the parts of k8s.io/client-go/tools that the kubelet uses, under Go's package names."""
