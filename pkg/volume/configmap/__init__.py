"""Serve configMap volumes, which hold the data of a config map as files.

Go: pkg/volume/configmap
"""

from pkg.volume.configmap.configmap import get_config_map, make_payload, probe_volume_plugins

__all__ = ["get_config_map", "make_payload", "probe_volume_plugins"]
