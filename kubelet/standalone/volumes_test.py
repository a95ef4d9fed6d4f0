"""Test the binding of claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubelet import standalone
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.runtime.testing import raising

ANY = {"accessModes": ["ReadWriteOnce"]}
DEVICE = "volume.podman.io/device"


def claim(name: str = "data", annotations: dict[str, str] | None = None, **spec: Any) -> v1.PersistentVolumeClaim:
    wanted = ANY | {"resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"} | spec
    return v1.PersistentVolumeClaim(
        metadata=metav1.ObjectMeta(name=name, namespace="ns", annotations=annotations or {}),
        spec=codec.convert(wanted, v1.PersistentVolumeClaimSpec),
    )


def volume(name: str = "disk", **spec: Any) -> v1.PersistentVolume:
    has = ANY | {"capacity": {"storage": "2Gi"}, "volumeMode": "Filesystem", "hostPath": {"path": "/srv"}} | spec
    return v1.PersistentVolume(metadata=metav1.ObjectMeta(name=name), spec=codec.convert(has, v1.PersistentVolumeSpec))


def volumes(root: Path, *objects: v1.PersistentVolumeClaim | v1.PersistentVolume) -> standalone.Volumes:
    store = standalone.ObjectStore()
    store.replace(objects)
    return standalone.Volumes(store, str(root))


def bound_path(found: standalone.Volumes, name: str = "data") -> str:
    """Return the host path of the claim's volume, and check that claim and volume refer to each other."""
    bound = found.get_persistent_volume_claim("ns", name)
    assert bound.status.phase == v1.CLAIM_BOUND and bound.metadata.uid
    got = found.get_persistent_volume(bound.spec.volume_name)
    claim_ref = got.spec.claim_ref
    assert claim_ref is not None and (claim_ref.uid, claim_ref.name) == (bound.metadata.uid, name)
    assert got.spec.host_path is not None
    return got.spec.host_path.path


def test_claim_gets_a_directory_that_stays(tmp_path: Path) -> None:
    path = Path(bound_path(volumes(tmp_path, claim())))
    assert path == tmp_path / "standalone-volumes/ns/data"
    assert path.is_dir() and path.stat().st_mode & 0o7777 == 0o777
    path.chmod(0o700)
    (path / "file").write_text("x")
    found = volumes(tmp_path)
    with pytest.raises(apierrors.StatusError, match='persistentvolumeclaim "data" not found'):
        found.get_persistent_volume_claim("ns", "data")
    assert bound_path(volumes(tmp_path, claim())) == str(path)
    assert (path / "file").read_text() == "x" and path.stat().st_mode & 0o7777 == 0o700


def test_directory_can_be_written_although_a_kubelet_was_killed_as_it_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(Path, "chmod", raising(InterruptedError()))
        bound_path(volumes(tmp_path, claim()))
    path = Path(bound_path(volumes(tmp_path, claim())))
    assert path.stat().st_mode & 0o7777 == 0o777


def test_claim_with_the_directory_of_its_annotation(tmp_path: Path) -> None:
    annotations = {DEVICE: "/srv/data", "volume.podman.io/type": "none", "volume.podman.io/mount-options": "bind"}
    assert bound_path(volumes(tmp_path, claim(annotations=annotations))) == "/srv/data"
    assert list(tmp_path.iterdir()) == []


def test_claim_of_a_volume_by_name(tmp_path: Path) -> None:
    assert bound_path(volumes(tmp_path, claim(volumeName="disk"), volume())) == "/srv"
    assert list(tmp_path.iterdir()) == []


def test_volume_for_a_claim(tmp_path: Path) -> None:
    for_data = volume(claimRef={"namespace": "ns", "name": "data"})
    assert bound_path(volumes(tmp_path, claim(), claim("other"), for_data)) == "/srv"
    found = volumes(tmp_path, claim(), claim("other"), for_data)
    assert bound_path(found, "other") == str(tmp_path / "standalone-volumes/ns/other")


def test_volume_that_nobody_claims(tmp_path: Path) -> None:
    found = volumes(tmp_path, claim(), claim("bad", volumeName="none"), volume())
    assert found.get_persistent_volume("disk").spec.claim_ref is None
    with pytest.raises(apierrors.StatusError, match='persistentvolume "none" not found'):
        found.get_persistent_volume("none")


NAMED: dict[str, Any] = {"volumeName": "disk"}
FAULTS: list[tuple[str, v1.PersistentVolumeClaim, v1.PersistentVolume, str]] = [
    ("no such volume", claim(volumeName="none"), volume(), 'spec.volumeName: the PersistentVolume "none" is in no'),
    (
        "volume of another",
        claim(**NAMED),
        volume(claimRef={"namespace": "ns", "name": "x"}),
        'spec.volumeName: the PersistentVolume "disk" is for another claim',
    ),
    ("too small", claim(**NAMED), volume(capacity={"storage": "1Mi"}), "spec.resources.requests.storage: .* has 1Mi"),
    (
        "other use",
        claim(**NAMED, accessModes=["ReadWriteMany"]),
        volume(),
        'spec.accessModes: the PersistentVolume "disk" cannot be used ReadWriteMany',
    ),
    ("mode", claim(**NAMED), volume(volumeMode="Block"), "spec.volumeMode: .* has volumeMode Block"),
    ("block of its own", claim(volumeMode="Block"), volume(), "spec.volumeMode: a Block volume needs"),
    (
        "copy",
        claim(dataSource={"kind": "PersistentVolumeClaim", "name": "x"}),
        volume(),
        "spec.dataSource: not supported",
    ),
    ("relative path", claim(annotations={DEVICE: "srv"}), volume(), 'device\\]: "srv" is not an absolute path'),
    ("path that climbs", claim(annotations={DEVICE: "/srv/../etc"}), volume(), "is not an absolute path"),
    (
        "image",
        claim(annotations={"volume.podman.io/image": "x"}),
        volume(),
        'metadata.annotations\\[volume.podman.io/image\\]: "x" is not supported',
    ),
]


@pytest.mark.parametrize(("wanted", "had", "message"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
def test_claim_that_cannot_be_bound(
    tmp_path: Path, wanted: v1.PersistentVolumeClaim, had: v1.PersistentVolume, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        volumes(tmp_path, wanted, had).get_persistent_volume_claim("ns", "data")
    assert list(tmp_path.iterdir()) == []


def test_first_of_two_claims_has_the_volume(tmp_path: Path) -> None:
    found = volumes(tmp_path, claim("b", **NAMED), claim("a", **NAMED), volume())
    assert bound_path(found, "a") == "/srv"
    with pytest.raises(ValueError, match='"disk" is bound to the claim ns/a'):
        found.get_persistent_volume_claim("ns", "b")


def test_what_the_folder_says_is_not_changed(tmp_path: Path) -> None:
    wanted, had = claim(**NAMED), volume()
    before = msgspec.json.encode([codec.to_builtins(wanted), codec.to_builtins(had)])
    found = volumes(tmp_path, wanted, had)
    wanted.metadata.resource_version = had.metadata.resource_version = ""
    bound_path(found)
    assert msgspec.json.encode([codec.to_builtins(wanted), codec.to_builtins(had)]) == before
