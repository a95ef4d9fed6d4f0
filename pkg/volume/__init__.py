"""Define volumes, and the plugins that serve them.

Go: pkg/volume
"""

from pkg.volume.metrics_block import MetricsBlock
from pkg.volume.metrics_cached import CachedMetrics
from pkg.volume.metrics_du import MetricsDu
from pkg.volume.metrics_errors import (
    ErrCode,
    MetricsError,
    is_not_supported,
    new_fs_info_failed_error,
    new_no_path_defined_error,
    new_not_implemented_error,
    new_not_supported_error,
    new_not_supported_error_with_driver_name,
)
from pkg.volume.metrics_nil import MetricsNil
from pkg.volume.metrics_statfs import MetricsStatFS
from pkg.volume.plugins import (
    AttachableVolumePlugin,
    BlockVolumePlugin,
    DeviceMountableVolumePlugin,
    NodeExpandableVolumePlugin,
    NodeResizeOptions,
    PluginNotFoundError,
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
from pkg.volume.volume_linux import VolumeOwnership

__all__ = [
    "AttachableVolumePlugin",
    "Attacher",
    "Attributes",
    "BlockVolume",
    "BlockVolumeMapper",
    "BlockVolumePlugin",
    "BlockVolumeUnmapper",
    "CachedMetrics",
    "CustomBlockVolumeMapper",
    "CustomBlockVolumeUnmapper",
    "Detacher",
    "DeviceMountableVolumePlugin",
    "DeviceMounter",
    "DeviceMounterArgs",
    "DeviceUnmounter",
    "ErrCode",
    "Metrics",
    "MetricsBlock",
    "MetricsDu",
    "MetricsError",
    "MetricsNil",
    "MetricsProvider",
    "MetricsStatFS",
    "Mounter",
    "MounterArgs",
    "NodeExpandableVolumePlugin",
    "NodeResizeOptions",
    "PluginNotFoundError",
    "ReconstructedVolume",
    "Spec",
    "Unmounter",
    "Volume",
    "VolumeHost",
    "VolumeOwnership",
    "VolumePlugin",
    "VolumePluginMgr",
    "is_not_supported",
    "new_fs_info_failed_error",
    "new_no_path_defined_error",
    "new_not_implemented_error",
    "new_not_supported_error",
    "new_not_supported_error_with_driver_name",
]
