"""How the kubelet and device plugins find each other.

Go: pkg/kubelet/cm/devicemanager/plugin
"""
