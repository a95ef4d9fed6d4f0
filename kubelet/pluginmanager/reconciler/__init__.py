"""Reconcile the registered plugins with the desired state.

Go: pkg/kubelet/pluginmanager/reconciler
"""

from kubelet.pluginmanager.reconciler.reconciler import Reconciler

__all__ = ["Reconciler"]
