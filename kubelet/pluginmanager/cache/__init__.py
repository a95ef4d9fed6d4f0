"""Which plugins there should be, by their sockets, and which are registered.

Go: pkg/kubelet/pluginmanager/cache
"""

from kubelet.pluginmanager.cache.actual_state_of_world import ActualStateOfWorld, PluginInfo
from kubelet.pluginmanager.cache.desired_state_of_world import DesiredStateOfWorld
from kubelet.pluginmanager.cache.types import PluginHandler

__all__ = ["ActualStateOfWorld", "DesiredStateOfWorld", "PluginHandler", "PluginInfo"]
