"""Define the API with which plugins register with the kubelet.

Go: k8s.io/kubelet/pkg/apis/pluginregistration
"""
