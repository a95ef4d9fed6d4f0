"""What plugins of drivers tell of their devices' health.

Go: k8s.io/kubelet/pkg/apis/dra-health
"""
