"""Messages and service of the pod resources API.

Go: staging/src/k8s.io/kubelet/pkg/apis/podresources/v1
"""
