"""The data of a secret as files.

Go: pkg/volume/secret
"""

from pkg.volume.secret.secret import make_payload, probe_volume_plugins

__all__ = ["make_payload", "probe_volume_plugins"]
