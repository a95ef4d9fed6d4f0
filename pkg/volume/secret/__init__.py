"""Serve secret volumes, which hold the data of a secret as files.

Go: pkg/volume/secret
"""

from pkg.volume.secret.secret import get_secret, make_payload, probe_volume_plugins

__all__ = ["get_secret", "make_payload", "probe_volume_plugins"]
