"""Messages and service of the pod resources API.

Go: k8s.io/kubelet/pkg/apis/podresources/v1alpha1
"""
