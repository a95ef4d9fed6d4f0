"""Define the finalizers that keep storage objects from being deleted while they are in use.

Go: pkg/volume/util/finalizer.go
"""

# The finalizer of claims that pods use.
PVC_PROTECTION_FINALIZER = "kubernetes.io/pvc-protection"
# The finalizer of persistent volumes that are bound to claims.
PV_PROTECTION_FINALIZER = "kubernetes.io/pv-protection"
