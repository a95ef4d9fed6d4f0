"""What keeps objects of storage from being removed while they are in use.

Go: pkg/volume/util/finalizer.go
"""

# On claims that pods use.
PVC_PROTECTION_FINALIZER = "kubernetes.io/pvc-protection"
# On volumes that are bound to claims.
PV_PROTECTION_FINALIZER = "kubernetes.io/pv-protection"
