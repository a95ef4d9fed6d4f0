"""The API between the kubelet and plugins that offer devices.

Go: staging/src/k8s.io/kubelet/pkg/apis/deviceplugin
"""
