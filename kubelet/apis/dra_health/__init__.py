"""What plugins of drivers tell of their devices' health.

Go: staging/src/k8s.io/kubelet/pkg/apis/dra-health
"""
