"""How plugins register with the kubelet.

Go: staging/src/k8s.io/kubelet/pkg/apis/pluginregistration
"""
