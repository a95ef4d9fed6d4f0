"""Serve projected volumes, which combine several sources into one set of files.

The source podCertificate is not supported, because its feature gate is off.

Go: pkg/volume/projected/projected.go
"""

from __future__ import annotations

from pkg import klog
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.util import errors as utilerrors
from pkg.volume import configmap, downwardapi, secret
from pkg.volume.plugins import Spec, VolumePlugin
from pkg.volume.util.atomic_writer import FileProjection
from pkg.volume.util.file_volume import FileVolume, FileVolumeMounter, FileVolumePlugin, Payload
from pkg.volume.volume import MounterArgs

PROJECTED_PLUGIN_NAME = "kubernetes.io/projected"
# `_OWNED_MODE` is the mode of tokens and trust anchors in a volume with a given user or group. The change of ownership
# adds what the group needs.
_OWNED_MODE = 0o600


def probe_volume_plugins() -> list[VolumePlugin]:
    return [ProjectedPlugin()]


class ProjectedPlugin(FileVolumePlugin):
    """Serve projected volumes. Their files are in memory."""

    PLUGIN_NAME = PROJECTED_PLUGIN_NAME

    def get_volume_name(self, spec: Spec) -> str:
        get_volume_source(spec)
        return spec.name()

    def can_support(self, spec: Spec) -> bool:
        return spec.volume is not None and spec.volume.projected is not None

    def new_mounter(self, spec: Spec, pod: v1.Pod) -> ProjectedVolumeMounter:
        return ProjectedVolumeMounter(self, spec.name(), pod, get_volume_source(spec))

    def new_unmounter(self, name: str, pod_uid: types.UID) -> ProjectedVolumeUnmounter:
        return ProjectedVolumeUnmounter(self, name, pod_uid)

    def empty_volume(self, name: str) -> v1.Volume:
        return v1.Volume(name=name, projected=v1.ProjectedVolumeSource())


class ProjectedVolumeUnmounter(FileVolume):
    """Represent a projected volume that is torn down, with the pod's entries in the token cache."""

    def tear_down_at(self, directory: str) -> None:
        super().tear_down_at(directory)
        self.plugin.host.delete_service_account_token(self.pod_uid)


class ProjectedVolumeMounter(FileVolumeMounter):
    """Write the files of several sources for one pod.

    DIVERGES (fault of Go): without an API server, the kubelet rejects only the sources that need one.
    Go: pkg/volume/projected/projected.go, (*projectedVolumeMounter).collectData: the Go kubelet rejects the whole
    volume.
    Why: a static pod on such a node can have a downwardAPI volume, but not the same files from a projected volume.
    Test: projected_test.py:test_standalone_has_what_needs_no_api_server
    """

    def __init__(self, plugin: FileVolumePlugin, vol_name: str, pod: v1.Pod, source: v1.ProjectedVolumeSource) -> None:
        super().__init__(plugin, vol_name, pod)
        self._source = source

    def collect_data(self, args: MounterArgs) -> Payload:
        """Return the files of all sources; for the same path the later source wins.

        Raise all errors together as an Aggregate.
        """
        if self._source.default_mode is None:
            raise ValueError("no defaultMode used, not even the default value for it")
        payload: Payload = {}
        with utilerrors.collecting() as errors:
            for source in self._source.sources:
                try:
                    payload.update(self._collect(source, args, self._source.default_mode))
                except Exception as err:  # As in Go, continue with the other sources after any error.
                    errors.append(err)
            if errors:
                raise self._failure(errors)
        return payload

    def _failure(self, errors: list[Exception]) -> utilerrors.Aggregate:
        """Log all errors together, and return them as one."""
        aggregate = utilerrors.Aggregate(errors)
        klog.error_s(
            aggregate,
            "Error preparing data for projected volume",
            volumeName=self.vol_name,
            pod=klog.kobj(self.pod),
        )
        return aggregate

    def _collect(self, source: v1.VolumeProjection, args: MounterArgs, default_mode: int) -> Payload:
        if source.secret is not None:
            return self._secret(source.secret, default_mode)
        if source.config_map is not None:
            return self._config_map(source.config_map, default_mode)
        if source.downward_api is not None:
            return downwardapi.collect_data(source.downward_api.items, self.pod, self.plugin.host, default_mode)
        owned = args.fs_user is not None or args.fs_group is not None
        mode = _OWNED_MODE if owned else default_mode
        if source.service_account_token is not None:
            token = self._service_account_token(source.service_account_token)
            return {source.service_account_token.path: FileProjection(token.encode(), mode, args.fs_user)}
        if source.cluster_trust_bundle is not None:
            anchors = self._cluster_trust_bundle(source.cluster_trust_bundle)
            return {source.cluster_trust_bundle.path: FileProjection(anchors, mode, args.fs_user)}
        if source.pod_certificate is not None:
            raise ValueError("PodCertificate projection is not supported")
        return {}

    def _secret(self, source: v1.SecretProjection, default_mode: int) -> Payload:
        optional = source.optional is True
        found = secret.get_secret(self.plugin.host, self.pod.metadata.namespace, source.name, optional)
        return secret.make_payload(source.items, found, default_mode, optional)

    def _config_map(self, source: v1.ConfigMapProjection, default_mode: int) -> Payload:
        optional = source.optional is True
        found = configmap.get_config_map(self.plugin.host, self.pod.metadata.namespace, source.name, optional)
        return configmap.make_payload(source.items, found, default_mode, optional)

    def _service_account_token(self, source: v1.ServiceAccountTokenProjection) -> str:
        """Return a token that is bound to the pod. The token manager renews it long before it expires."""
        metadata = self.pod.metadata
        request = authenticationv1.TokenRequest(
            spec=authenticationv1.TokenRequestSpec(
                audiences=[source.audience] if source.audience else [],
                expiration_seconds=source.expiration_seconds,
                bound_object_ref=authenticationv1.BoundObjectReference(
                    api_version="v1", kind="Pod", name=metadata.name, uid=metadata.uid
                ),
            )
        )
        account = self.pod.spec.service_account_name
        return self.plugin.host.get_service_account_token(metadata.namespace, account, request).status.token

    def _cluster_trust_bundle(self, source: v1.ClusterTrustBundleProjection) -> bytes:
        optional = source.optional is True
        if source.name is not None:
            return self.plugin.host.get_trust_anchors_by_name(source.name, optional)
        if source.signer_name is not None:
            signer, selector = source.signer_name, source.label_selector
            return self.plugin.host.get_trust_anchors_by_signer(signer, selector, optional)
        raise ValueError("ClusterTrustBundle projection requires either name or signerName to be set")


def get_volume_source(spec: Spec) -> v1.ProjectedVolumeSource:
    """Return the projected source. Raise ValueError for another kind of volume."""
    if spec.volume is not None and spec.volume.projected is not None:
        return spec.volume.projected
    raise ValueError("spec does not reference a projected volume type")
