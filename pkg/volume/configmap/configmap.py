"""Serve configMap volumes, which hold the data of a config map as files.

Go: pkg/volume/configmap/configmap.go
"""

from __future__ import annotations

from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors
from pkg.volume.plugins import Spec, VolumeHost, VolumePlugin
from pkg.volume.util import file_volume
from pkg.volume.util.file_volume import FileVolumeMounter, FileVolumePlugin, Payload
from pkg.volume.volume import MounterArgs

CONFIG_MAP_PLUGIN_NAME = "kubernetes.io/configmap"


def probe_volume_plugins() -> list[VolumePlugin]:
    return [ConfigMapPlugin()]


class ConfigMapPlugin(FileVolumePlugin):
    """Serve configMap volumes. Their files are on disk, because their memory would count against no pod."""

    PLUGIN_NAME = CONFIG_MAP_PLUGIN_NAME
    MEDIUM = v1.STORAGE_MEDIUM_DEFAULT

    def get_volume_name(self, spec: Spec) -> str:
        source = get_volume_source(spec)
        if source is None:
            raise ValueError("spec does not reference a ConfigMap volume type")
        return f"{spec.name()}/{source.name}"

    def can_support(self, spec: Spec) -> bool:
        return get_volume_source(spec) is not None

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> ConfigMapVolumeMounter:
        source = get_volume_source(spec)
        assert source is not None
        return ConfigMapVolumeMounter(self, spec.name(), pod, source)

    def empty_volume(self, name: str) -> v1.Volume:
        return v1.Volume(name=name, config_map=v1.ConfigMapVolumeSource())


class ConfigMapVolumeMounter(FileVolumeMounter):
    """Write the files of a config map for one pod."""

    def __init__(self, plugin: FileVolumePlugin, vol_name: str, pod: v1.Pod, source: v1.ConfigMapVolumeSource) -> None:
        super().__init__(plugin, vol_name, pod)
        self._source = source

    def collect_data(self, args: MounterArgs) -> Payload:
        source, namespace, optional = self._source, self.pod.metadata.namespace, self._source.optional is True
        config_map = get_config_map(self.plugin.host, namespace, source.name, optional)
        klog.v(3).info_s(
            "Received configMap",
            configMap=klog.kref(namespace, source.name),
            piecesOfData=len(config_map.data) + len(config_map.binary_data),
            totalBytes=total_bytes(config_map),
        )
        return make_payload(source.items, config_map, source.default_mode, optional)


def get_config_map(host: VolumeHost, namespace: str, name: str, optional: bool) -> v1.ConfigMap:
    """Return the config map, or one without data if it is optional and missing. Raise any error of the host."""
    try:
        return host.get_config_map(namespace, name)
    except Exception as err:
        # Log any error here, where the name of the config map is known.
        if optional and apierrors.is_not_found(err):
            return v1.ConfigMap()
        klog.error_s(err, "Couldn't get configMap", configMap=klog.kref(namespace, name))
        raise


def make_payload(
    mappings: list[v1.KeyToPath], config_map: v1.ConfigMap, default_mode: int | None, optional: bool
) -> Payload:
    """Return the files for a config map.

    Raise ValueError if a key of mappings is missing and the config map is not optional.
    """
    data = {name: text.encode() for name, text in config_map.data.items()}
    # No key is in both dictionaries. The order is that of Go.
    everything = {**config_map.binary_data, **data} if mappings else {**data, **config_map.binary_data}
    missing = "configmap references non-existent config key"
    return file_volume.make_payload(mappings, everything, default_mode, optional, missing)


def total_bytes(config_map: v1.ConfigMap) -> int:
    return sum(map(len, config_map.data.values())) + sum(map(len, config_map.binary_data.values()))


def get_volume_source(spec: Spec) -> v1.ConfigMapVolumeSource | None:
    return spec.volume.config_map if spec.volume is not None else None
