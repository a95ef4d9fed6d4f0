"""Find plugins by their sockets in a directory, and register each with the handler of its type.

A plugin listens on a socket below plugins_registry. The watcher adds the socket to the desired state. The reconciler
registers the plugins of the desired state, and deregisters those that are no longer in it. At a registration the plugin
reports its type over the socket, the handler of the type validates and accepts it, and the plugin gets the result.

Go: pkg/kubelet/pluginmanager
"""

from kubelet.pluginmanager.plugin_manager import PluginManager

__all__ = ["PluginManager"]
