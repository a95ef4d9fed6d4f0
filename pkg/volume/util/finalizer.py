"""Define the finalizers that keep storage objects from being deleted while they are in use.

Go: pkg/volume/util/finalizer.go
"""

# `PVC_PROTECTION_FINALIZER` is the finalizer of claims that pods use.
PVC_PROTECTION_FINALIZER = "kubernetes.io/pvc-protection"
# `PV_PROTECTION_FINALIZER` is the finalizer of persistent volumes that are bound to claims.
PV_PROTECTION_FINALIZER = "kubernetes.io/pv-protection"
