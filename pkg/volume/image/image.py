"""Serve image volumes, which the runtime mounts, so that the volume manager has nothing to do.

Go: pkg/volume/image/image.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.volume.metrics_nil import MetricsNil
from pkg.volume.plugins import ReconstructedVolume, Spec, VolumeHost, VolumePlugin
from pkg.volume.volume import Attributes, MounterArgs

PLUGIN_NAME = "kubernetes.io/image"


def probe_volume_plugins() -> list[VolumePlugin]:
    return [ImagePlugin()]


class ImagePlugin(MetricsNil):
    """Serve as plugin, mounter and unmounter, none of which has any state."""

    def init(self, host: VolumeHost) -> None:
        pass

    def get_plugin_name(self) -> str:
        return PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        source = get_volume_source(spec)
        if source is None:
            raise ValueError("the volumeSpec does not reference an Image volume type")
        return source.reference

    def can_support(self, spec: Spec) -> bool:
        return get_volume_source(spec) is not None

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> ImagePlugin:
        return self

    def new_unmounter(self, name: str, pod_uid: types.UID) -> ImagePlugin:
        return self

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        return ReconstructedVolume(Spec())

    def get_attributes(self) -> Attributes:
        return Attributes(read_only=True, managed=False, selinux_relabel=False)

    def get_path(self) -> str:
        return ""

    def requires_remount(self, spec: Spec) -> bool:
        return False

    def set_up(self, args: MounterArgs) -> None:
        """Do nothing, because the runtime mounts the image."""

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        """Do nothing, because the runtime mounts the image."""

    def supports_mount_option(self) -> bool:
        return False

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        return False

    def tear_down(self) -> None:
        """Do nothing, because the runtime unmounts the image."""

    def tear_down_at(self, directory: str) -> None:
        """Do nothing, because the runtime unmounts the image."""


def get_volume_source(spec: Spec) -> v1.ImageVolumeSource | None:
    return spec.volume.image if spec.volume is not None else None
