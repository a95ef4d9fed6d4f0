"""Bind claims to volumes without an API server.

A claim is bound to the PersistentVolume of the manifest directory that it names in spec.volumeName, or that names it in
spec.claimRef. Without such a volume the claim gets its own directory: the one that the annotation
volume.podman.io/device names, which must exist, or <root-dir>/standalone-volumes/<namespace>/<name>, which is created.
A created directory stays even after the claim is deleted, because only the user knows when the data may be deleted.
"""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from pathlib import Path

import msgspec

from kubelet.standalone.objects import ObjectStore
from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.util import filesystem

DIRECTORY_NAME = "standalone-volumes"

# `podman kube play` also reads these annotations of claims.
_ANNOTATION_PREFIX = "volume.podman.io/"
DEVICE_ANNOTATION = f"{_ANNOTATION_PREFIX}device"
# These are podman's other annotations with the supported values, which mean that the device is a directory.
_HARMLESS_ANNOTATIONS = {
    f"{_ANNOTATION_PREFIX}driver": {"local"},
    f"{_ANNOTATION_PREFIX}type": {"none", "bind"},
    f"{_ANNOTATION_PREFIX}mount-options": {"bind", "rbind"},
}
# A directory has this mode until its final mode is set. No user gives a directory this mode.
_UNFINISHED = stat.S_ISVTX


class Volumes:
    """Return claims and volumes as if a cluster had bound them. Any thread may call this class."""

    def __init__(self, objects: ObjectStore, root_directory: str) -> None:
        self._objects = objects
        self._directory = os.path.join(root_directory, DIRECTORY_NAME)

    def get_persistent_volume_claim(self, namespace: str, name: str) -> v1.PersistentVolumeClaim:
        """Return the claim as bound, and create the directory if the claim has its own.

        Raise apierrors.StatusError (not found), ValueError if the claim cannot be bound, and OSError.
        """
        claim = self._objects.get(v1.PersistentVolumeClaim, namespace, name)
        volume = self._bind(claim)
        host_path = volume.spec.host_path
        if host_path is not None and host_path.path == self._directory_of(claim):
            _make_directory(self._directory, claim)
        return msgspec.structs.replace(
            claim,
            metadata=msgspec.structs.replace(claim.metadata, uid=_uid(claim)),
            spec=msgspec.structs.replace(claim.spec, volume_name=volume.metadata.name),
            status=v1.PersistentVolumeClaimStatus(
                phase=v1.CLAIM_BOUND, access_modes=volume.spec.access_modes, capacity=volume.spec.capacity
            ),
        )

    def get_persistent_volume(self, name: str) -> v1.PersistentVolume:
        """Return the volume of that name, with the claim bound to it. Raise apierrors.StatusError (not found)."""
        for claim in self._objects.list(v1.PersistentVolumeClaim):
            try:
                volume = self._bind(claim)
            except ValueError:
                continue  # Callers that ask for this claim get the error.
            if volume.metadata.name == name:
                return volume
        return self._objects.get(v1.PersistentVolume, "", name)

    def _bind(self, claim: v1.PersistentVolumeClaim) -> v1.PersistentVolume:
        """Return the claim's volume. Raise ValueError with the name of the invalid field."""
        if claim.spec.data_source is not None or claim.spec.data_source_ref is not None:
            raise ValueError("spec.dataSource: not supported without an API server")
        volume = self._declared_volume(claim)
        if volume is None:
            volume = self._own_volume(claim)
        else:
            _check_fit(claim, volume)
        claim_ref = v1.ObjectReference(
            kind="PersistentVolumeClaim",
            namespace=claim.metadata.namespace,
            name=claim.metadata.name,
            uid=_uid(claim),
        )
        return msgspec.structs.replace(volume, spec=msgspec.structs.replace(volume.spec, claim_ref=claim_ref))

    def _declared_volume(self, claim: v1.PersistentVolumeClaim) -> v1.PersistentVolume | None:
        """Return the volume of the manifest directory for this claim, if there is one."""
        name = claim.spec.volume_name
        for volume in self._objects.list(v1.PersistentVolume):
            if volume.spec.claim_ref is not None:
                if not _is_for(volume.spec.claim_ref, claim):
                    if volume.metadata.name == name:
                        raise ValueError(f'spec.volumeName: the PersistentVolume "{name}" is for another claim')
                elif name in ("", volume.metadata.name):
                    return volume
            elif volume.metadata.name == name:
                self._check_first(claim)
                return volume
        if name:
            raise ValueError(f'spec.volumeName: the PersistentVolume "{name}" is in no file of the manifest directory')
        return None

    def _check_first(self, claim: v1.PersistentVolumeClaim) -> None:
        """Raise ValueError unless the claim is the first of those that name the volume.

        The first claim is always the same one, whichever claim is requested first.
        """
        name = claim.spec.volume_name
        first = next(c for c in self._objects.list(v1.PersistentVolumeClaim) if c.spec.volume_name == name)
        if (first.metadata.namespace, first.metadata.name) != (claim.metadata.namespace, claim.metadata.name):
            raise ValueError(f'spec.volumeName: the PersistentVolume "{name}" is bound to the claim {klog.kobj(first)}')

    def _own_volume(self, claim: v1.PersistentVolumeClaim) -> v1.PersistentVolume:
        """Return a volume that is not in the manifest directory: a host directory for this claim alone."""
        if claim.spec.volume_mode == v1.PERSISTENT_VOLUME_BLOCK:
            raise ValueError("spec.volumeMode: a Block volume needs a PersistentVolume, named in spec.volumeName")
        path = _device(claim) or self._directory_of(claim)
        return v1.PersistentVolume(
            metadata=metav1.ObjectMeta(name=f"pvc-{_uid(claim)}"),
            spec=v1.PersistentVolumeSpec(
                access_modes=claim.spec.access_modes,
                capacity=dict(claim.spec.resources.requests),
                host_path=v1.HostPathVolumeSource(path=path, type=v1.HOST_PATH_DIRECTORY),
                volume_mode=v1.PERSISTENT_VOLUME_FILESYSTEM,
                persistent_volume_reclaim_policy=v1.PERSISTENT_VOLUME_RECLAIM_RETAIN,
            ),
        )

    def _directory_of(self, claim: v1.PersistentVolumeClaim) -> str:
        return os.path.join(self._directory, claim.metadata.namespace, claim.metadata.name)


def _is_for(claim_ref: v1.ObjectReference, claim: v1.PersistentVolumeClaim) -> bool:
    namespace = claim_ref.namespace or metav1.NAMESPACE_DEFAULT
    return (namespace, claim_ref.name) == (claim.metadata.namespace, claim.metadata.name)


def _check_fit(claim: v1.PersistentVolumeClaim, volume: v1.PersistentVolume) -> None:
    """Raise ValueError if the volume does not satisfy the claim."""
    what = f'the PersistentVolume "{volume.metadata.name}"'
    if claim.spec.volume_mode != volume.spec.volume_mode:
        raise ValueError(f"spec.volumeMode: {what} has volumeMode {volume.spec.volume_mode}")
    if missing := [mode for mode in claim.spec.access_modes if mode not in volume.spec.access_modes]:
        raise ValueError(f"spec.accessModes: {what} cannot be used {', '.join(missing)}")
    asked, size = claim.spec.resources.requests["storage"], volume.spec.capacity["storage"]
    if size.cmp(asked) < 0:
        raise ValueError(f"spec.resources.requests.storage: {what} has {size}, less than {asked}")


def _device(claim: v1.PersistentVolumeClaim) -> str:
    """Return the directory in the claim's annotations, or "". Raise ValueError if an annotation is not supported."""
    annotations = claim.metadata.annotations
    for key, value in annotations.items():
        if not key.startswith(_ANNOTATION_PREFIX) or key == DEVICE_ANNOTATION:
            continue
        if value not in _HARMLESS_ANNOTATIONS.get(key, set()):
            raise ValueError(f"metadata.annotations[{key}]: {klog.quote(value)} is not supported")
    path = annotations.get(DEVICE_ANNOTATION, "")
    if path and (not path.startswith("/") or ".." in path.split("/")):
        raise ValueError(f"metadata.annotations[{DEVICE_ANNOTATION}]: {klog.quote(path)} is not an absolute path")
    return path


def _make_directory(root: str, claim: v1.PersistentVolumeClaim) -> None:
    """Create the claim's directory. Like an emptyDir it is writable for containers of any user."""
    parent = Path(root, claim.metadata.namespace)
    filesystem.mkdir_all(parent, 0o750)
    path = parent / claim.metadata.name
    with contextlib.suppress(FileExistsError):
        path.mkdir(_UNFINISHED)
    # This mode means that this kubelet, or one that was killed, has just created the directory. The user may have
    # chosen any other mode.
    if path.stat().st_mode & 0o1777 == _UNFINISHED:
        path.chmod(0o777)


def _uid(claim: v1.PersistentVolumeClaim) -> types.UID:
    """Return a UID that stays the same after a restart."""
    return types.UID(str(uuid.uuid5(uuid.NAMESPACE_URL, f"persistentvolumeclaim/{klog.kobj(claim)}")))
