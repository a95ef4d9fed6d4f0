"""Define the API between the kubelet and device plugins.

Go: k8s.io/kubelet/pkg/apis/deviceplugin
"""
