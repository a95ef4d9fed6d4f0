"""Watch the directory of the plugins' sockets.

Go: pkg/kubelet/pluginmanager/pluginwatcher
"""

from kubelet.pluginmanager.pluginwatcher.plugin_watcher import Watcher

__all__ = ["Watcher"]
