"""Reconcile the desired and the actual state of volumes.

Go: pkg/kubelet/volumemanager/reconciler
"""

from kubelet.volumemanager.reconciler.reconciler import REST_FACTOR, Reconciler

__all__ = ["REST_FACTOR", "Reconciler"]
