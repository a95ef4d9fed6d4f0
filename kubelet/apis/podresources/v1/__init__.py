"""Define the messages and the service of the pod resources API.

Go: k8s.io/kubelet/pkg/apis/podresources/v1
"""
