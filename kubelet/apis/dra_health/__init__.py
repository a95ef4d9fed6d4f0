"""Define the API with which DRA plugins report the health of devices.

Go: k8s.io/kubelet/pkg/apis/dra-health
"""
