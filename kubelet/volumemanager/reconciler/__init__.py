"""Makes the actual state the desired one.

Go: pkg/kubelet/volumemanager/reconciler
"""

from kubelet.volumemanager.reconciler.reconciler import REST_FACTOR, Reconciler

__all__ = ["REST_FACTOR", "Reconciler"]
