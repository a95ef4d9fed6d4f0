"""Provide the base of all volumes that the kubelet writes as files: an emptyDir that an atomic writer fills.

Go: pkg/volume/configmap/configmap.go, pkg/volume/secret/secret.go, pkg/volume/downwardapi/downwardapi.go,
pkg/volume/projected/projected.go; each of these files has its own copy of this code
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.volume import util as volumeutil
from pkg.volume.metrics_cached import CachedMetrics
from pkg.volume.metrics_du import MetricsDu
from pkg.volume.plugins import ReconstructedVolume, Spec, VolumeHost
from pkg.volume.util.atomic_writer import AtomicWriter, FileProjection
from pkg.volume.volume import Attributes, Metrics, Mounter, MounterArgs, Unmounter
from pkg.volume.volume_linux import VolumeOwnership

Payload = dict[str, FileProjection]


class FileVolumePlugin(ABC):
    """Serve as the base of plugins whose volumes are files."""

    PLUGIN_NAME: ClassVar[str]
    # `MEDIUM` is the medium of the emptyDir that holds the files.
    MEDIUM: ClassVar[str] = v1.STORAGE_MEDIUM_MEMORY

    host: VolumeHost

    def init(self, host: VolumeHost) -> None:
        self.host = host

    def get_plugin_name(self) -> str:
        return self.PLUGIN_NAME

    @abstractmethod
    def get_volume_name(self, spec: Spec) -> str: ...

    @abstractmethod
    def can_support(self, spec: Spec) -> bool: ...

    @abstractmethod
    def new_mounter(self, spec: Spec, pod: v1.Pod) -> Mounter: ...

    def requires_remount(self, spec: Spec) -> bool:
        """Report true, because the content of the files may change."""
        return True

    def supports_mount_option(self) -> bool:
        return False

    def supports_selinux_context_mount(self, spec: Spec) -> bool:
        return False

    def new_unmounter(self, name: str, pod_uid: types.UID) -> Unmounter:
        return FileVolume(self, name, pod_uid)

    def construct_volume_spec(self, volume_name: str, volume_path: str) -> ReconstructedVolume:
        return ReconstructedVolume(Spec(self.empty_volume(volume_name)))

    @abstractmethod
    def empty_volume(self, name: str) -> v1.Volume:
        """Return a volume of this kind that has nothing but the name."""
        ...


class FileVolume:
    """Represent a volume of files of one pod; an Unmounter."""

    def __init__(self, plugin: FileVolumePlugin, vol_name: str, pod_uid: types.UID) -> None:
        self.plugin = plugin
        self.vol_name = vol_name
        self.pod_uid = pod_uid
        self._metrics = CachedMetrics(MetricsDu(self.get_path()))

    def get_path(self) -> str:
        name = self.plugin.PLUGIN_NAME.replace("/", "~")
        return self.plugin.host.get_pod_volume_dir(self.pod_uid, name, self.vol_name)

    def get_attributes(self) -> Attributes:
        return Attributes(read_only=True, managed=True, selinux_relabel=True)

    def get_metrics(self) -> Metrics:
        return self._metrics.get_metrics()

    def wrapped_volume_spec(self) -> Spec:
        """Return the emptyDir that holds the files."""
        return Spec(v1.Volume(empty_dir=v1.EmptyDirVolumeSource(medium=self.plugin.MEDIUM)))

    def tear_down(self) -> None:
        self.tear_down_at(self.get_path())

    def tear_down_at(self, directory: str) -> None:
        spec = self.wrapped_volume_spec()
        volumeutil.unmount_via_empty_dir(directory, self.plugin.host, self.vol_name, spec, self.pod_uid)


class FileVolumeMounter(FileVolume, ABC):
    """Represent a volume of files of one pod; a Mounter."""

    def __init__(self, plugin: FileVolumePlugin, vol_name: str, pod: v1.Pod) -> None:
        super().__init__(plugin, vol_name, pod.metadata.uid)
        self.pod = pod

    @abstractmethod
    def collect_data(self, args: MounterArgs) -> Mapping[str, FileProjection]:
        """Return the files by path. Raise an error if they cannot be determined."""
        ...

    def set_up(self, args: MounterArgs) -> None:
        self.set_up_at(self.get_path(), args)

    def set_up_at(self, directory: str, args: MounterArgs) -> None:
        klog.v(3).info_s("Setting up volume", volumeName=self.vol_name, podUID=self.pod_uid, path=directory)
        wrapped = self.plugin.host.new_wrapper_mounter(self.vol_name, self.wrapped_volume_spec(), self.pod)
        payload = self.collect_data(args)
        wrapped.set_up_at(directory, args)
        try:
            volumeutil.make_nested_mountpoints(self.vol_name, directory, self.pod)
            self._write(directory, payload, args)
        except Exception:
            # DIVERGES (fault of Go): a volume that containers may already use stays if an update of its files fails, or
            # if the first set-up after a restart of the kubelet fails.
            # Go: pkg/volume/configmap/configmap.go, (*configMapVolumeMounter).SetUpAt: the Go kubelet tears the volume
            # down after each failure; it does so for secrets, projected and downward API volumes too.
            # Why: running containers would lose all files because one could not be updated.
            # Test: pkg/volume/configmap/configmap_test.py:test_failed_update_leaves_what_the_pod_has
            if not args.is_remount and not args.reconstructed_volume:
                self._clean_up()
            raise

    def _write(self, directory: str, payload: Mapping[str, FileProjection], args: MounterArgs) -> None:
        metadata = self.pod.metadata
        context = f"pod {metadata.namespace}/{metadata.name} volume {self.vol_name}"

        def set_perms(_: str) -> None:
            # Change the whole volume: at the first write other entries besides the data directory need an owner too.
            complete = volumeutil.fs_group_complete_hook(self.plugin, None)
            VolumeOwnership(self, directory, args.fs_group, None, complete).change_permissions()

        AtomicWriter(directory, context, self.plugin.host.get_mounter()).write(payload, set_perms)

    def _clean_up(self) -> None:
        try:
            self.plugin.new_unmounter(self.vol_name, self.pod_uid).tear_down()
        except Exception as err:  # The pod must learn the set-up's error, not this one.
            klog.error_s(err, "Error tearing down volume", volumeName=self.vol_name)


def make_payload(
    mappings: list[v1.KeyToPath], data: Mapping[str, bytes], default_mode: int | None, optional: bool, missing: str
) -> Payload:
    """Return the files for an object's data: all keys under their own names, or only those in mappings.

    Raise ValueError for a missing key, unless the object is optional. missing is the beginning of the message.
    """
    if default_mode is None:
        raise ValueError("no defaultMode used, not even the default value for it")
    if not mappings:
        return {name: FileProjection(content, default_mode) for name, content in data.items()}
    payload: Payload = {}
    for mapping in mappings:
        if mapping.key in data:
            mode = default_mode if mapping.mode is None else mapping.mode
            payload[mapping.path] = FileProjection(data[mapping.key], mode)
        elif not optional:
            raise ValueError(f"{missing}: {mapping.key}")
    return payload
