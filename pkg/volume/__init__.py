"""Volumes, and the plugins that make them.

Go: pkg/volume
"""

from pkg.volume.plugins import (
    ReconstructedVolume,
    Spec,
    VolumeHost,
    VolumePlugin,
    VolumePluginMgr,
)
from pkg.volume.volume import Attributes, Mounter, MounterArgs, Unmounter, Volume
from pkg.volume.volume_linux import set_volume_ownership

__all__ = [
    "Attributes",
    "Mounter",
    "MounterArgs",
    "ReconstructedVolume",
    "Spec",
    "Unmounter",
    "Volume",
    "VolumeHost",
    "VolumePlugin",
    "VolumePluginMgr",
    "set_volume_ownership",
]
