"""Serve secret volumes, which hold the data of a secret as files.

Go: pkg/volume/secret/secret.go
"""

from __future__ import annotations

from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors
from pkg.volume.plugins import Spec, VolumeHost, VolumePlugin
from pkg.volume.util import file_volume
from pkg.volume.util.file_volume import FileVolumeMounter, FileVolumePlugin, Payload
from pkg.volume.volume import MounterArgs

SECRET_PLUGIN_NAME = "kubernetes.io/secret"


def probe_volume_plugins() -> list[VolumePlugin]:
    return [SecretPlugin()]


class SecretPlugin(FileVolumePlugin):
    """Serve secret volumes. Their files are in memory."""

    PLUGIN_NAME = SECRET_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        source = get_volume_source(spec)
        if source is None:
            raise ValueError("spec does not reference a Secret volume type")
        return source.secret_name

    def can_support(self, spec: Spec) -> bool:
        return get_volume_source(spec) is not None

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> SecretVolumeMounter:
        source = get_volume_source(spec)
        assert source is not None
        return SecretVolumeMounter(self, spec.name(), pod, source)

    def empty_volume(self, name: str) -> v1.Volume:
        return v1.Volume(name=name, secret=v1.SecretVolumeSource(secret_name=name))


class SecretVolumeMounter(FileVolumeMounter):
    """Write the files of a secret for one pod."""

    def __init__(self, plugin: FileVolumePlugin, vol_name: str, pod: v1.Pod, source: v1.SecretVolumeSource) -> None:
        super().__init__(plugin, vol_name, pod)
        self._source = source

    def collect_data(self, args: MounterArgs) -> Payload:
        source, namespace, optional = self._source, self.pod.metadata.namespace, self._source.optional is True
        secret = get_secret(self.plugin.host, namespace, source.secret_name, optional)
        klog.v(3).info_s(
            "Received secret",
            secret=klog.kref(namespace, source.secret_name),
            piecesOfData=len(secret.data),
            totalBytes=total_secret_bytes(secret),
        )
        return make_payload(source.items, secret, source.default_mode, optional)


def get_secret(host: VolumeHost, namespace: str, name: str, optional: bool) -> v1.Secret:
    """Return the secret, or one without data if it is optional and missing. Raise any error of the host."""
    try:
        return host.get_secret(namespace, name)
    except Exception as err:
        # Log any error here, where the name of the secret is known.
        if optional and apierrors.is_not_found(err):
            return v1.Secret()
        klog.error_s(err, "Couldn't get secret", secret=klog.kref(namespace, name))
        raise


def make_payload(mappings: list[v1.KeyToPath], secret: v1.Secret, default_mode: int | None, optional: bool) -> Payload:
    """Return the files for a secret.

    Raise ValueError if a key of mappings is missing and the secret is not optional.
    """
    missing = "references non-existent secret key"
    return file_volume.make_payload(mappings, secret.data, default_mode, optional, missing)


def total_secret_bytes(secret: v1.Secret) -> int:
    return sum(map(len, secret.data.values()))


def get_volume_source(spec: Spec) -> v1.SecretVolumeSource | None:
    return spec.volume.secret if spec.volume is not None else None
