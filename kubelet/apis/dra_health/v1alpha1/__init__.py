"""Define the messages and the service of device health, version v1alpha1.

Go: k8s.io/kubelet/pkg/apis/dra-health/v1alpha1
"""
