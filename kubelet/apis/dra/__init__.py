"""Define the kubelet's calls to DRA driver plugins, which prepare claimed resources.

Go: k8s.io/kubelet/pkg/apis/dra
"""
