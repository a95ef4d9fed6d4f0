"""Makes the plugins that are registered those that should be.

Go: pkg/kubelet/pluginmanager/reconciler
"""

from kubelet.pluginmanager.reconciler.reconciler import Reconciler

__all__ = ["Reconciler"]
