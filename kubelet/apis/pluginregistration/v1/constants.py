"""The types that a plugin may name.

Go: k8s.io/kubelet/pkg/apis/pluginregistration/v1/constants.go
"""

CSI_PLUGIN = "CSIPlugin"
DEVICE_PLUGIN = "DevicePlugin"
DRA_PLUGIN = "DRAPlugin"
