"""The API between the kubelet and plugins that offer devices.

Go: k8s.io/kubelet/pkg/apis/deviceplugin
"""
