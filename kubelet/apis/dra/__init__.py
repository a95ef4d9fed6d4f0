"""What the kubelet calls on plugins of drivers that prepare claimed resources.

Go: k8s.io/kubelet/pkg/apis/dra
"""
