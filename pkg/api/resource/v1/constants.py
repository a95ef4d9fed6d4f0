"""Well-known values of the resource API group.

Go: k8s.io/api/resource/v1/types.go
"""

# Fields by which slices of resources can be selected.
RESOURCE_SLICE_SELECTOR_NODE_NAME = "spec.nodeName"
RESOURCE_SLICE_SELECTOR_DRIVER = "spec.driver"
