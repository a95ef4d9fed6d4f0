"""Define the name with which a plugin advertises this version of the service.

Go: k8s.io/kubelet/pkg/apis/dra/v1/types.go
"""

DRA_PLUGIN_SERVICE = "v1.DRAPlugin"
