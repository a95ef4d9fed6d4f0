"""Collect the parts of k8s.io/client-go/util that the kubelet uses, under Go's package names."""
