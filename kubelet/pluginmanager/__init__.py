"""Finds plugins by the sockets they put into a directory, and brings each to the part of the kubelet it is for.

A plugin listens on a socket below plugins_registry. The watcher notes the socket as wanted; the reconciler has each
wanted one registered and each registered one that is wanted no more deregistered: the plugin says over its socket
what it is, the handler of that type judges and takes it, and the plugin is told what came of it.

Go: pkg/kubelet/pluginmanager
"""

from kubelet.pluginmanager.plugin_manager import PluginManager

__all__ = ["PluginManager"]
