"""Serve volumes of external drivers that speak the Container Storage Interface (CSI).

Go: pkg/volume/csi
"""

from pkg.volume.csi.csi_plugin import MIGRATED_PLUGINS, CSIPlugin, RegistrationHandler, probe_volume_plugins
from pkg.volume.csi.csi_util import CSI_PLUGIN_NAME, get_csi_driver_name, get_csi_mounter_path

__all__ = [
    "CSI_PLUGIN_NAME",
    "MIGRATED_PLUGINS",
    "CSIPlugin",
    "RegistrationHandler",
    "get_csi_driver_name",
    "get_csi_mounter_path",
    "probe_volume_plugins",
]
