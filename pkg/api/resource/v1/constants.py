"""Define the well-known values of the resource API group.

Go: k8s.io/api/resource/v1/types.go
"""

# Resource slices can be selected by these fields.
RESOURCE_SLICE_SELECTOR_NODE_NAME = "spec.nodeName"
RESOURCE_SLICE_SELECTOR_DRIVER = "spec.driver"
