"""Define the types of plugins.

Go: k8s.io/kubelet/pkg/apis/pluginregistration/v1/constants.go
"""

CSI_PLUGIN = "CSIPlugin"
DEVICE_PLUGIN = "DevicePlugin"
DRA_PLUGIN = "DRAPlugin"
