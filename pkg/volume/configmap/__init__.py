"""The data of a config map as files.

Go: pkg/volume/configmap
"""

from pkg.volume.configmap.configmap import make_payload, probe_volume_plugins

__all__ = ["make_payload", "probe_volume_plugins"]
