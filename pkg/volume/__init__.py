"""Volumes, and the plugins that make them.

Go: pkg/volume
"""

from pkg.volume.plugins import (
    AttachableVolumePlugin,
    BlockVolumePlugin,
    DeviceMountableVolumePlugin,
    NodeExpandableVolumePlugin,
    NodeResizeOptions,
    ReconstructedVolume,
    Spec,
    VolumeHost,
    VolumePlugin,
    VolumePluginMgr,
)
from pkg.volume.volume import (
    Attacher,
    Attributes,
    BlockVolume,
    BlockVolumeMapper,
    BlockVolumeUnmapper,
    CustomBlockVolumeMapper,
    CustomBlockVolumeUnmapper,
    Detacher,
    DeviceMounter,
    DeviceMounterArgs,
    DeviceUnmounter,
    Metrics,
    MetricsProvider,
    Mounter,
    MounterArgs,
    Unmounter,
    Volume,
)
from pkg.volume.volume_linux import set_volume_ownership

__all__ = [
    "AttachableVolumePlugin",
    "Attacher",
    "Attributes",
    "BlockVolume",
    "BlockVolumeMapper",
    "BlockVolumePlugin",
    "BlockVolumeUnmapper",
    "CustomBlockVolumeMapper",
    "CustomBlockVolumeUnmapper",
    "Detacher",
    "DeviceMountableVolumePlugin",
    "DeviceMounter",
    "DeviceMounterArgs",
    "DeviceUnmounter",
    "Metrics",
    "MetricsProvider",
    "Mounter",
    "MounterArgs",
    "NodeExpandableVolumePlugin",
    "NodeResizeOptions",
    "ReconstructedVolume",
    "Spec",
    "Unmounter",
    "Volume",
    "VolumeHost",
    "VolumePlugin",
    "VolumePluginMgr",
    "set_volume_ownership",
]
