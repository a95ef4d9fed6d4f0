"""Makes the actual state the desired one.

Go: pkg/kubelet/volumemanager/reconciler
"""

from kubelet.volumemanager.reconciler.reconciler import Reconciler

__all__ = ["Reconciler"]
