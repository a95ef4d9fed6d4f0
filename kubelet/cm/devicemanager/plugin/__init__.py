"""Register device plugins and connect to them.

Go: pkg/kubelet/cm/devicemanager/plugin
"""
