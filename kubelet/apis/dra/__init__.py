"""What the kubelet calls on plugins of drivers that prepare claimed resources.

Go: staging/src/k8s.io/kubelet/pkg/apis/dra
"""
