"""Hold the desired and the actual state of plugins: those with a socket, and those that are registered.

Go: pkg/kubelet/pluginmanager/cache
"""

from kubelet.pluginmanager.cache.actual_state_of_world import ActualStateOfWorld, PluginInfo
from kubelet.pluginmanager.cache.desired_state_of_world import DesiredStateOfWorld
from kubelet.pluginmanager.cache.types import PluginHandler

__all__ = ["ActualStateOfWorld", "DesiredStateOfWorld", "PluginHandler", "PluginInfo"]
