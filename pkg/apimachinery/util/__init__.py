"""Provide the helpers of k8s.io/apimachinery/pkg/util that the kubelet uses."""
