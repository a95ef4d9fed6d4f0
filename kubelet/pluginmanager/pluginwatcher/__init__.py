"""Watches the directory that plugins put their sockets into.

Go: pkg/kubelet/pluginmanager/pluginwatcher
"""

from kubelet.pluginmanager.pluginwatcher.plugin_watcher import Watcher

__all__ = ["Watcher"]
