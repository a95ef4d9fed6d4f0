"""Messages and service of devices' health, version v1alpha1.

Go: staging/src/k8s.io/kubelet/pkg/apis/dra-health/v1alpha1
"""
