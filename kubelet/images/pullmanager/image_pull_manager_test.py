"""Test the pull records and their manager.

Go: pkg/kubelet/images/pullmanager/image_pull_manager_test.go, fs_pullrecords_test.go, metrics_test.go
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubelet import container as kubecontainer
from kubelet.images import pullmanager
from kubelet.images.pullmanager import ImagePullCredentials, ImagePullSecret, ImagePullServiceAccount, metrics
from kubelet.images.pullmanager.image_pull_manager import _merge_credentials
from kubelet.images.pullmanager.interfaces import ImagePulledRecord
from pkg import golang
from pkg.apimachinery.clock import testing as testingclock
from pkg.apimachinery.util.runtime.testing import failing_once
from pkg.component_base.metrics import testing as metricstesting
from pkg.util import atomicfile

_CTX = golang.background()
_IMAGE = "docker.io/testing/test"
_DIGESTED = "digest@sha256:" + "0" * 64
_SECRET = ImagePullSecret("uid", "default", "pull-secret", "hash")
_ACCOUNT = ImagePullServiceAccount("uid", "default", "account")
_EVERYONE = ImagePullCredentials(node_pods_accessible=True)


def _secrets(*secrets: ImagePullSecret) -> ImagePullCredentials:
    return ImagePullCredentials(kubernetes_secrets=list(secrets))


def _accounts(*accounts: ImagePullServiceAccount) -> ImagePullCredentials:
    return ImagePullCredentials(kubernetes_service_accounts=list(accounts))


def _replaced(secret: ImagePullSecret, **fields: str) -> ImagePullSecret:
    return msgspec.structs.replace(secret, **fields)


class _Images:
    """Hold the images of a runtime."""

    def __init__(self, *images: kubecontainer.Image) -> None:
        self.images = images

    def list_images(self, ctx: golang.Context) -> list[kubecontainer.Image]:
        return list(self.images)


def _manager(
    root: Path,
    policy: str = "NeverVerifyPreloadedImages",
    images: Sequence[kubecontainer.Image] = (),
    clock: testingclock.FakeClock | None = None,
) -> pullmanager.PullManager:
    enforcer = pullmanager.image_pull_credential_verification_policy(policy, [])
    service: Any = _Images(*images)
    accessor = pullmanager.FSPullRecordsAccessor(str(root))
    return pullmanager.PullManager(_CTX, accessor, enforcer, service, clock or testingclock.FakeClock())


def _record(manager: pullmanager.PullManager, image: str, credentials: ImagePullCredentials) -> None:
    manager.record_pull_intent(image)
    manager.record_image_pulled(_CTX, image, "ref", credentials)


def _recorded(root: Path) -> dict[str, ImagePullCredentials]:
    record = pullmanager.FSPullRecordsAccessor(str(root)).get_image_pulled_record("ref")
    return record.credential_mapping if record is not None else {}


@dataclass(frozen=True)
class _Case:
    """Describe the credentials of a pull, those of a pod, and whether the pod must pull."""

    pulled_with: ImagePullCredentials | None = field(default_factory=lambda: _secrets(_SECRET))
    secrets: tuple[ImagePullSecret, ...] = ()
    account: ImagePullServiceAccount | None = None
    must: bool = False
    # `asked` is true if the pod's credentials were looked up.
    asked: bool = True
    image: str = f"{_IMAGE}:latest"
    policy: str = "NeverVerifyPreloadedImages"
    intended: bool = False
    # `recorded` is the record after the pull, if it differs from the record before it.
    recorded: ImagePullCredentials | None = None


_OTHER_NAMESPACE = _replaced(_SECRET, namespace="other")
_OTHER_ACCOUNT = ImagePullServiceAccount("another", "default", "account")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(_Case(secrets=(_SECRET,)), id="the same secret"),
        pytest.param(_Case(must=True), id="no secret"),
        pytest.param(
            _Case(
                secrets=(_replaced(_SECRET, credential_hash="new"),),
                recorded=_secrets(_replaced(_SECRET, credential_hash="new")),
            ),
            id="the same secret with other contents",
        ),
        pytest.param(
            _Case(secrets=(_replaced(_SECRET, uid="new", credential_hash="new"),), must=True), id="another uid"
        ),
        pytest.param(
            _Case(secrets=(_replaced(_OTHER_NAMESPACE, credential_hash="new"),), must=True), id="another secret"
        ),
        pytest.param(
            _Case(secrets=(_OTHER_NAMESPACE,), recorded=_secrets(_SECRET, _OTHER_NAMESPACE)),
            id="another secret with the same contents",
        ),
        pytest.param(
            _Case(secrets=(_SECRET,), image="docker.io/testing/other:latest", must=True, asked=False),
            id="another name of the image",
        ),
        pytest.param(_Case(ImagePullCredentials(), must=True, asked=False), id="nobody may"),
        pytest.param(_Case(None, asked=False), id="no record"),
        pytest.param(_Case(None, policy="AlwaysVerify", must=True, asked=False), id="no record, always verified"),
        pytest.param(_Case(None, intended=True, must=True, asked=False), id="being pulled"),
        pytest.param(_Case(None, intended=True, policy="NeverVerify", asked=False), id="being pulled, never verified"),
        pytest.param(_Case(_EVERYONE, asked=False), id="open to everyone"),
        pytest.param(_Case(_EVERYONE, (_SECRET,), asked=False), id="open to everyone, with a secret"),
        pytest.param(
            _Case(
                _secrets(_replaced(_SECRET, credential_hash="")),
                (_replaced(_OTHER_NAMESPACE, credential_hash=""),),
                must=True,
            ),
            id="two secrets without a hash",
        ),
        pytest.param(
            _Case(_secrets(_replaced(_SECRET, credential_hash="")), (_replaced(_SECRET, credential_hash=""),)),
            id="the same secret without a hash",
        ),
        pytest.param(_Case(_accounts(_ACCOUNT), account=_ACCOUNT), id="the same service account"),
        pytest.param(_Case(_accounts(_ACCOUNT), must=True), id="no service account"),
        pytest.param(_Case(_accounts(_ACCOUNT), account=_OTHER_ACCOUNT, must=True), id="another service account"),
        pytest.param(
            _Case(_accounts(_ACCOUNT), account=_ACCOUNT, policy="AlwaysVerify"),
            id="the same service account, always verified",
        ),
    ],
)
def test_must_attempt_image_pull(tmp_path: Path, case: _Case) -> None:
    manager = _manager(tmp_path, case.policy)
    if case.pulled_with is not None:
        _record(manager, f"{_IMAGE}:latest", case.pulled_with)
    if case.intended:
        manager.record_pull_intent(case.image)
    asked: list[None] = []

    def get_pod_credentials() -> tuple[list[ImagePullSecret], ImagePullServiceAccount | None]:
        asked.append(None)
        return list(case.secrets), case.account

    assert manager.must_attempt_image_pull(_CTX, case.image, "ref", get_pod_credentials) is case.must
    assert bool(asked) is case.asked
    expected = case.recorded or case.pulled_with
    assert _recorded(tmp_path).get(_IMAGE) == expected


def test_absent_image_must_be_pulled(tmp_path: Path) -> None:
    assert _manager(tmp_path, "NeverVerify").must_attempt_image_pull(_CTX, _IMAGE, "", lambda: ([], None))


def test_trouble_with_the_credentials_is_raised_and_counted(tmp_path: Path) -> None:
    manager = _manager(tmp_path)
    _record(manager, _IMAGE, _secrets(_SECRET))

    def get_pod_credentials() -> tuple[list[ImagePullSecret], ImagePullServiceAccount | None]:
        raise RuntimeError("no API server")

    counter = metrics.MUST_PULL_CHECKS_TOTAL.labels("error")
    with metricstesting.moves(counter), pytest.raises(RuntimeError, match="no API server"):
        manager.must_attempt_image_pull(_CTX, _IMAGE, "ref", get_pod_credentials)


_B, _C = _replaced(_SECRET, name="b"), _replaced(_SECRET, name="c")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (_secrets(_B), _secrets(_C), _secrets(_B, _C)),
        (_secrets(_C), _secrets(_B), _secrets(_B, _C)),
        (_secrets(_B), _secrets(_B), _secrets(_B)),
        (
            _secrets(_B),
            _secrets(_replaced(_B, credential_hash="new")),
            _secrets(_replaced(_B, credential_hash="new")),
        ),
        (_secrets(_B, _C), _EVERYONE, _EVERYONE),
        (_EVERYONE, _secrets(_B), _EVERYONE),
        (_EVERYONE, _accounts(_ACCOUNT), _EVERYONE),
        (_accounts(_ACCOUNT), _accounts(_OTHER_ACCOUNT), _accounts(_OTHER_ACCOUNT, _ACCOUNT)),
        (_accounts(_ACCOUNT), _accounts(_ACCOUNT), _accounts(_ACCOUNT)),
        (
            _secrets(_B),
            _accounts(_ACCOUNT),
            ImagePullCredentials(kubernetes_secrets=[_B], kubernetes_service_accounts=[_ACCOUNT]),
        ),
    ],
)
def test_merge(old: ImagePullCredentials, new: ImagePullCredentials, expected: ImagePullCredentials) -> None:
    assert _merge_credentials(old, new) == expected


def test_names_of_one_image_are_recorded_side_by_side(tmp_path: Path) -> None:
    manager = _manager(tmp_path)
    _record(manager, "test:latest", _secrets(_SECRET))
    _record(manager, "org/test@sha256:" + "0" * 64, _EVERYONE)
    assert _recorded(tmp_path) == {"test": _secrets(_SECRET), "org/test": _EVERYONE}


def test_image_that_is_pulled_again_while_garbage_is_collected(tmp_path: Path) -> None:
    """An image that is pulled again after a collection removed it keeps its pull record."""
    clock = testingclock.FakeClock()
    manager = _manager(tmp_path, clock=clock)
    _record(manager, _IMAGE, _secrets(_SECRET))
    clock.step(3600)
    collection_began = clock.now()
    clock.step(1)
    _record(manager, _IMAGE, _secrets(_SECRET))
    manager.prune_unknown_records(_CTX, ["other"], collection_began)
    assert manager.must_attempt_image_pull(_CTX, _IMAGE, "ref", lambda: ([], None))


def test_a_record_is_written_once_for_a_secret_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new secret is recorded once, although the known secret matches first at each start of a container."""
    accessor, written = pullmanager.FSPullRecordsAccessor, list[ImagePulledRecord]()
    write = accessor.write_image_pulled_record

    def note(records: pullmanager.FSPullRecordsAccessor, record: ImagePulledRecord) -> None:
        written.append(record)
        write(records, record)

    manager, others = _manager(tmp_path), _replaced(_SECRET, name="z-other")
    _record(manager, _IMAGE, _secrets(_SECRET))
    monkeypatch.setattr(accessor, "write_image_pulled_record", note)
    for _ in range(3):
        assert not manager.must_attempt_image_pull(_CTX, _IMAGE, "ref", lambda: ([others], None))
    assert [record.credential_mapping for record in written] == [_recorded(tmp_path)]
    assert _recorded(tmp_path) == {_IMAGE: _secrets(_SECRET, others)}


def test_records_outlast_a_runtime_that_shows_no_images(tmp_path: Path) -> None:
    manager = _manager(tmp_path)
    _record(manager, _IMAGE, _secrets(_SECRET))
    manager.prune_unknown_records(_CTX, [], datetime.max.replace(tzinfo=UTC))
    assert manager.must_attempt_image_pull(_CTX, _IMAGE, "ref", lambda: ([], None))
    manager.prune_unknown_records(_CTX, ["other"], datetime.max.replace(tzinfo=UTC))
    assert _recorded(tmp_path) == {}


def test_intent_lasts_as_long_as_the_last_pull(tmp_path: Path) -> None:
    manager = _manager(tmp_path)
    accessor = pullmanager.FSPullRecordsAccessor(str(tmp_path))
    for _ in range(2):
        manager.record_pull_intent(_IMAGE)
    manager.record_image_pull_failed(_CTX, _IMAGE)
    assert accessor.image_pull_intent_exists(_IMAGE)
    assert metricstesting.value(metrics.FS_PULL_INTENTS_SIZE) == 1
    manager.record_image_pulled(_CTX, _IMAGE, "ref", _EVERYONE)
    assert not accessor.image_pull_intent_exists(_IMAGE)
    assert metricstesting.value(metrics.FS_PULL_INTENTS_SIZE) == 0
    assert metricstesting.value(metrics.FS_PULLED_RECORDS_SIZE) == 1


def test_record_that_cannot_be_read_at_the_moment_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = _manager(tmp_path)
    _record(manager, _IMAGE, _secrets(_SECRET))
    err = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    accessor = pullmanager.FSPullRecordsAccessor
    failing = failing_once(accessor.get_image_pulled_record, err)
    monkeypatch.setattr(accessor, "get_image_pulled_record", failing)
    _record(manager, _IMAGE, _secrets(_OTHER_NAMESPACE))
    assert _recorded(tmp_path) == {_IMAGE: _secrets(_SECRET)}


@pytest.mark.parametrize("fails_at", [1, 2], ids=["as it is written", "as it is removed"])
def test_records_that_cannot_be_counted_leave_no_intent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """An intent is removed even if the records cannot be counted.

    A remaining intent would make the image count as pulled by the kubelet permanently.
    """
    manager = _manager(tmp_path)
    counted: list[Path] = []
    glob = Path.glob

    def failing(directory: Path, pattern: str) -> Iterator[Path]:
        counted.append(directory)
        if len(counted) == fails_at:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return glob(directory, pattern)

    monkeypatch.setattr(Path, "glob", failing)
    manager.record_pull_intent(_IMAGE)
    manager.record_image_pull_failed(_CTX, _IMAGE)
    assert len(counted) == 2
    assert not manager.must_attempt_image_pull(_CTX, _IMAGE, "ref", lambda: ([], None))


def test_intent_outlasts_a_crash_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The intent is on the disk before the pull, so that a crash does not open a private image to all pods."""
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    pulling = tmp_path / "image_manager" / "pulling"
    _manager(tmp_path).record_pull_intent(_IMAGE)
    assert [Path(path).parent for path in synced] == [pulling, pulling.parent], "the file, and then its directory"


def test_directories_that_somebody_removed_are_made_again(tmp_path: Path) -> None:
    manager = _manager(tmp_path)
    shutil.rmtree(tmp_path / "image_manager")
    _record(manager, _IMAGE, _EVERYONE)
    assert _recorded(tmp_path) == {_IMAGE: _EVERYONE}


def test_intents_of_a_dead_kubelet(tmp_path: Path) -> None:
    accessor = pullmanager.FSPullRecordsAccessor(str(tmp_path))
    for image in ("tagged:1", _DIGESTED, "never-came:1"):
        accessor.write_image_pull_intent(image)
    arrived = kubecontainer.Image(id="ref", repo_tags=["tagged:1", "other:2"], repo_digests=[_DIGESTED])
    _manager(tmp_path, images=[arrived])
    assert [intent.image for intent in accessor.list_image_pull_intents()] == ["never-came:1"]
    assert accessor.get_image_pulled_record("ref") is not None
    assert _recorded(tmp_path) == {}


def test_intent_of_a_dead_kubelet_outlasts_a_pull_that_fails(tmp_path: Path) -> None:
    """A failed pull does not open the image to all pods: any pod could make a pull fail."""
    _manager(tmp_path).record_pull_intent(_IMAGE)
    manager = _manager(tmp_path)
    manager.record_pull_intent(_IMAGE)
    manager.record_image_pull_failed(_CTX, _IMAGE)
    assert manager.must_attempt_image_pull(_CTX, _IMAGE, "ref", lambda: ([], None))
    _record(manager, _IMAGE, _EVERYONE)
    assert pullmanager.FSPullRecordsAccessor(str(tmp_path)).list_image_pull_intents() == []


# These records have the form in which the Go kubelet writes them.
_GO_RECORD = (
    '{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/%s","lastUpdatedTime":"2024-10-21T12:00:00Z",'
    '"imageRef":"ref","credentialMapping":{"docker.io/testing/test":{"kubernetesSecrets":[{"uid":"uid",'
    '"namespace":"default","name":"pull-secret","credentialHash":"hash"}]}}}\n'
)
_GO_INTENT = '{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/%s","image":"docker.io/testing/test"}\n'


def _file_of(name: str) -> str:
    return f"sha256-{hashlib.sha256(name.encode()).hexdigest()}"


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_records_of_the_go_kubelet_are_read(tmp_path: Path, version: str) -> None:
    accessor = pullmanager.FSPullRecordsAccessor(str(tmp_path))
    record_file = tmp_path / "image_manager" / "pulled" / _file_of("ref")
    record_file.write_text(_GO_RECORD % version)
    (tmp_path / "image_manager" / "pulling" / _file_of(_IMAGE)).write_text(_GO_INTENT % version)
    record = accessor.get_image_pulled_record("ref")
    assert record is not None
    assert record.credential_mapping == {_IMAGE: _secrets(_SECRET)}
    assert accessor.list_image_pulled_records() == [record]
    assert [intent.image for intent in accessor.list_image_pull_intents()] == [_IMAGE]
    assert accessor.image_pull_intent_exists(_IMAGE)


def _put(root: Path, records: dict[str, str | bytes], intents: dict[str, str | bytes]) -> None:
    """Write files of an earlier kubelet. The keys are the image names behind the files' names."""
    for folder, files in (("pulled", records), ("pulling", intents)):
        directory = root / "image_manager" / folder
        directory.mkdir(parents=True)
        for name, content in files.items():
            (directory / _file_of(name)).write_bytes(content.encode() if isinstance(content, str) else content)


def _kept(root: Path, folder: str, name: str) -> bytes:
    return (root / "image_manager" / folder / _file_of(name)).read_bytes()


_NONSENSE: dict[str, str | bytes] = {
    "no JSON": "{",
    "no text": b"\xff",
    "too deep": '{"x":' + "[" * 100_000,
    "another kind": '{"kind":"Pod","apiVersion":"v1"}',
}


def test_files_of_an_older_version_are_written_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _put(
        tmp_path,
        {"ref": _GO_RECORD % "v1alpha1", **_NONSENSE},
        {_IMAGE: _GO_INTENT % "v1alpha1", **_NONSENSE},
    )
    pullmanager.FSPullRecordsAccessor(str(tmp_path))
    logged = capsys.readouterr().err
    for folder, name, by_go, message in (
        ("pulled", "ref", _GO_RECORD, "Error migrating image pulled records"),
        ("pulling", _IMAGE, _GO_INTENT, "Error migrating image pull intents"),
    ):
        written = msgspec.json.decode(_kept(tmp_path, folder, name))
        assert written == msgspec.json.decode(by_go % "v1beta1")
        for nonsense, content in _NONSENSE.items():
            expected = content.encode() if isinstance(content, str) else content
            assert _kept(tmp_path, folder, nonsense) == expected, "somebody may still want it"
            assert re.search(f'"{message}" err=.*{_file_of(nonsense)}', logged)
    assert logged.count("Error migrating") == 2 * len(_NONSENSE)
    for size in (metrics.FS_PULL_INTENTS_SIZE, metrics.FS_PULLED_RECORDS_SIZE):
        assert metricstesting.value(size) == 1 + len(_NONSENSE)


def test_files_of_the_newest_version_stay_as_they_are(tmp_path: Path) -> None:
    record, intent = f"  {_GO_RECORD}" % "v1beta1", f"  {_GO_INTENT}" % "v1beta1"
    _put(tmp_path, {"ref": record}, {_IMAGE: intent})
    pullmanager.FSPullRecordsAccessor(str(tmp_path))
    assert (_kept(tmp_path, "pulled", "ref"), _kept(tmp_path, "pulling", _IMAGE)) == (record.encode(), intent.encode())


def test_a_disk_that_takes_nothing_keeps_no_kubelet_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _GO_INTENT % "v1alpha1"
    _put(tmp_path, {"ref": _GO_RECORD % "v1alpha1"}, {_IMAGE: old})
    write, full = atomicfile.write, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(atomicfile, "write", failing_once(write, full))
    accessor = pullmanager.FSPullRecordsAccessor(str(tmp_path))
    assert _kept(tmp_path, "pulling", _IMAGE) == old.encode()
    assert accessor.image_pull_intent_exists(_IMAGE)
    assert b"v1beta1" in _kept(tmp_path, "pulled", "ref")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("kubelet.config.k8s.io/", "kubelet.config.k8s.io/v2"),
        ('"apiVersion":"kubelet.config.k8s.io/v1beta1",', ""),
        ('"kind":"Image', '"kind":"Other'),
        ('"kind":', '"king":'),
        ("{", '{"newer":1,'),
    ],
    ids=["another version", "no version", "another kind", "no kind", "a field that there is not"],
)
def test_what_is_no_record_is_refused(tmp_path: Path, old: str, new: str) -> None:
    record, intent = (text % "v1beta1" for text in (_GO_RECORD, _GO_INTENT))
    _put(tmp_path, {"ref": record.replace(old, new, 1)}, {_IMAGE: intent.replace(old, new, 1)})
    accessor = pullmanager.FSPullRecordsAccessor(str(tmp_path))
    with pytest.raises(ValueError):
        accessor.get_image_pulled_record("ref")
    with pytest.raises(ValueError):
        accessor.image_pull_intent_exists(_IMAGE)
    assert (accessor.list_image_pulled_records(), accessor.list_image_pull_intents()) == ([], [])


@pytest.mark.parametrize("old", ['{"uid"', '{"kubernetesSecrets"'], ids=["a secret", "credentials"])
def test_record_with_a_field_within_that_there_is_not_is_refused(tmp_path: Path, old: str) -> None:
    record = _GO_RECORD % "v1beta1"
    _put(tmp_path, {"ref": record.replace(old, '{"newer":1,' + old[1:])}, {})
    with pytest.raises(ValueError, match="newer"):
        pullmanager.FSPullRecordsAccessor(str(tmp_path)).get_image_pulled_record("ref")


def test_an_image_whose_intent_makes_no_sense_must_be_pulled(tmp_path: Path) -> None:
    """An image with a malformed intent must be pulled, while other images are accessible to all pods."""
    _put(tmp_path, {}, {_IMAGE: "{"})
    manager = _manager(tmp_path)
    assert manager.must_attempt_image_pull(_CTX, _IMAGE, "ref", lambda: ([], None))
    assert not manager.must_attempt_image_pull(_CTX, "other", "other-ref", lambda: ([], None))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(b"docker.io", b"docker\xff.io", id="no text"),
        pytest.param(b'Z"', b'"', id="a time without a zone"),
    ],
)
def test_a_record_that_cannot_be_read_keeps_no_others_from_being_pruned(tmp_path: Path, old: bytes, new: bytes) -> None:
    broken = (_GO_RECORD % "v1beta1").encode()
    assert old in broken
    accessor = pullmanager.FSPullRecordsAccessor(str(tmp_path))
    pulled = tmp_path / "image_manager" / "pulled"
    (pulled / _file_of("a broken one")).write_bytes(broken.replace(old, new))
    (pulled / _file_of("ref")).write_text(_GO_RECORD % "v1beta1")
    _manager(tmp_path).prune_unknown_records(_CTX, ["other"], datetime.now(UTC))
    assert accessor.list_image_pulled_records() == []
    assert [path.name for path in pulled.iterdir()] == [_file_of("a broken one")]


def test_an_intent_that_cannot_be_read_keeps_no_kubelet_from_starting(tmp_path: Path) -> None:
    accessor = pullmanager.FSPullRecordsAccessor(str(tmp_path))
    broken = (_GO_INTENT % "v1beta1").encode().replace(b"docker.io", b"docker\xff.io")
    (tmp_path / "image_manager" / "pulling" / _file_of(_IMAGE)).write_bytes(broken)
    _manager(tmp_path)
    assert accessor.list_image_pull_intents() == []


def test_records_are_written_as_the_go_kubelet_reads_them(tmp_path: Path) -> None:
    manager = _manager(tmp_path)
    _record(manager, f"{_IMAGE}:latest", _secrets(_SECRET))
    manager.record_pull_intent(_IMAGE)
    (record_file,) = (tmp_path / "image_manager" / "pulled").iterdir()
    (intent_file,) = (tmp_path / "image_manager" / "pulling").iterdir()
    assert (record_file.name, intent_file.name) == (_file_of("ref"), _file_of(_IMAGE))
    assert (record_file.stat().st_mode & 0o777, record_file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    written, by_go = (msgspec.json.decode(text) for text in (record_file.read_text(), _GO_RECORD % "v1beta1"))
    assert {**written, "lastUpdatedTime": by_go["lastUpdatedTime"]} == by_go
    assert msgspec.json.decode(intent_file.read_text()) == msgspec.json.decode(_GO_INTENT % "v1beta1")
