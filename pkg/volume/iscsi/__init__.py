"""Serve iscsi volumes, which are disks of iSCSI targets, with the node's iscsiadm.

Go: pkg/volume/iscsi
"""

from pkg.volume.iscsi.iscsi import probe_volume_plugins

__all__ = ["probe_volume_plugins"]
