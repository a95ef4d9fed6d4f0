"""Define the messages and the service of the first pod resources API.

Go: k8s.io/kubelet/pkg/apis/podresources/v1alpha1
"""
