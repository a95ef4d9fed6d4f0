"""Serve downwardAPI volumes, which hold fields of the pod as files.

Go: pkg/volume/downwardapi/downwardapi.go
"""

from __future__ import annotations

import posixpath

from pkg import fieldpath, klog
from pkg.api.core import v1
from pkg.api.v1 import resource
from pkg.apimachinery.util import errors as utilerrors
from pkg.volume.plugins import Spec, VolumeHost, VolumePlugin
from pkg.volume.util.atomic_writer import FileProjection
from pkg.volume.util.file_volume import FileVolumeMounter, FileVolumePlugin, Payload
from pkg.volume.volume import MounterArgs

DOWNWARD_API_PLUGIN_NAME = "kubernetes.io/downward-api"


def probe_volume_plugins() -> list[VolumePlugin]:
    return [DownwardAPIPlugin()]


class DownwardAPIPlugin(FileVolumePlugin):
    """Serve downwardAPI volumes. Their files are in memory."""

    PLUGIN_NAME = DOWNWARD_API_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        if get_volume_source(spec) is None:
            raise ValueError("spec does not reference a DownwardAPI volume type")
        return spec.name()

    def can_support(self, spec: Spec) -> bool:
        return get_volume_source(spec) is not None

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> DownwardAPIVolumeMounter:
        source = get_volume_source(spec)
        assert source is not None
        return DownwardAPIVolumeMounter(self, spec.name(), pod, source)

    def empty_volume(self, name: str) -> v1.Volume:
        return v1.Volume(name=name, downward_api=v1.DownwardAPIVolumeSource())


class DownwardAPIVolumeMounter(FileVolumeMounter):
    """Write the fields of one pod as files."""

    def __init__(
        self, plugin: FileVolumePlugin, vol_name: str, pod: v1.Pod, source: v1.DownwardAPIVolumeSource
    ) -> None:
        super().__init__(plugin, vol_name, pod)
        self._source = source

    def collect_data(self, args: MounterArgs) -> Payload:
        return collect_data(self._source.items, self.pod, self.plugin.host, self._source.default_mode)


def collect_data(
    items: list[v1.DownwardAPIVolumeFile], pod: v1.Pod, host: VolumeHost, default_mode: int | None
) -> Payload:
    """Return the files by path. Raise an Aggregate of the errors of all fields that cannot be read, or ValueError."""
    if default_mode is None:
        raise ValueError("no defaultMode used, not even the default value for it")
    payload: Payload = {}
    with utilerrors.collecting() as errors:
        for item in items:
            mode = default_mode if item.mode is None else item.mode
            try:
                payload[posixpath.normpath(item.path)] = FileProjection(_content(item, pod, host).encode(), mode)
            except Exception as err:  # As in Go, continue with the other fields after any error.
                field = item.field_ref.field_path if item.field_ref is not None else item.path
                klog.error_s(err, "Unable to extract field", field=field)
                errors.append(err)
        if errors:
            raise utilerrors.Aggregate(errors)
    return payload


def _content(item: v1.DownwardAPIVolumeFile, pod: v1.Pod, host: VolumeHost) -> str:
    if item.field_ref is not None:
        return fieldpath.extract_field_path_as_string(pod, item.field_ref.field_path)
    if item.resource_field_ref is None:
        return ""
    container_name = item.resource_field_ref.container_name
    return resource.extract_resource_value_by_container_name_and_node_allocatable(
        item.resource_field_ref, pod, container_name, host.get_node_allocatable()
    )


def get_volume_source(spec: Spec) -> v1.DownwardAPIVolumeSource | None:
    return spec.volume.downward_api if spec.volume is not None else None
