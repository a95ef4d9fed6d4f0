"""Test the image manager.

Go: pkg/kubelet/images/image_manager_test.go, pkg/util/parsers/parsers_test.go
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.waiting import threads_named, wait_for, wait_until_equal

from kubelet import container as kubecontainer
from kubelet import images
from kubelet.images import helpers, image_manager, metrics, progress, puller, pullmanager
from kubelet.kuberuntime import testing
from pkg import credentialprovider, features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.client_go.util import flowcontrol
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.component_base.metrics import testing as metricstesting
from pkg.util import parsers

_CTX = golang.background()
_POD = v1.Pod(
    metadata=metav1.ObjectMeta(name="pod", namespace="ns", uid=types.UID("uid")), spec=v1.PodSpec(containers=[])
)


class _Images:
    """Fake a runtime that has only present_image, and record the calls; every other image must be pulled."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.present = {"present_image:latest"}
        self.inspect_err: Exception | None = None
        self.pull_err: Exception | None = None
        self.credentials: list[list[str]] = []
        self.on_pull: Callable[[], object] = lambda: None
        self._lock = threading.Lock()

    def get_image_ref(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> str:
        self.calls.append("GetImageRef")
        if self.inspect_err is not None:
            raise self.inspect_err
        return "ref" if image.image in self.present else ""

    def pull_image(
        self,
        ctx: golang.Context,
        image: kubecontainer.ImageSpec,
        credentials: Sequence[credentialprovider.TrackedAuthConfig],
        pod_sandbox_config: Any,
    ) -> tuple[str, credentialprovider.TrackedAuthConfig | None]:
        with self._lock:
            self.calls.append("PullImage")
            self.credentials.append([c.auth_config.username for c in credentials])
        self.on_pull()
        if self.pull_err is not None:
            raise self.pull_err
        self.present.add(image.image)
        return "ref", credentials[0] if credentials else None

    def get_image_size(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> int:
        self.calls.append("GetImageSize")
        return 42

    def list_images(self, ctx: golang.Context) -> list[kubecontainer.Image]:
        return [kubecontainer.Image(id="ref", repo_tags=["known:1"])]

    def remove_image(self, ctx: golang.Context, image: kubecontainer.ImageSpec) -> None:
        raise NotImplementedError

    image_stats = image_fs_info = remove_image


class _World:
    """Hold an image manager with all its dependencies."""

    def __init__(
        self,
        pull_manager: pullmanager.ImagePullManager | None = None,
        qps: float = 0.0,
        burst: int = 0,
        serialized: bool = False,
        limit: int | None = None,
        critical_first: bool = False,
    ) -> None:
        self.clock = testingclock.FakeClock()
        self.images = _Images()
        self.recorder = FakeRecorder(100)
        self.pulling = testing.FakePodPullingTimeRecorder()
        self.manager = images.ImageManager(
            self.recorder,
            credentialprovider.BasicDockerKeyring(),
            self.images,  # type: ignore[arg-type]
            pull_manager or pullmanager.NoopImagePullManager(),
            flowcontrol.Backoff(10.0, 60.0, clock=self.clock),
            serialized,
            limit,
            qps,
            burst,
            self.pulling,
            critical_first=critical_first,
        )

    def ensure(self, image: str, policy: str, secrets: Sequence[v1.Secret] = ()) -> str:
        ref = v1.ObjectReference(name="pod")
        return self.manager.ensure_image_exists(_CTX, ref, _POD, image, secrets, None, "", policy)

    def error(self, image: str, policy: str) -> images.ImageError:
        with pytest.raises(images.ImageError) as caught:
            self.ensure(image, policy)
        return caught.value

    def took(self) -> tuple[list[str], list[str]]:
        """Return the calls and the reasons of events since the last call of this method."""
        calls, self.images.calls = self.images.calls, []
        return calls, [event.split(" ")[1] for event in self.recorder.drain()]


_PULLED = (["PullImage", "GetImageSize"], ["Pulling", "Pulled"])


def test_missing_image_is_pulled() -> None:
    world = _World()
    assert world.ensure("missing_image", "IfNotPresent") == "ref"
    assert world.took() == (["GetImageRef", *_PULLED[0]], _PULLED[1])
    assert (world.pulling.started, world.pulling.finished) == (["uid"], ["uid"])


def test_present_image_is_not_pulled() -> None:
    world = _World()
    for policy in ("IfNotPresent", "Never"):
        assert world.ensure("present_image", policy) == "ref"
        assert world.recorder.drain() == [
            'Normal Pulled Container image "present_image" already present on machine and can be accessed by the pod'
        ]
    assert world.images.calls == ["GetImageRef", "GetImageRef"]


def test_right_to_an_image_is_told_only_where_it_is_looked_at() -> None:
    world = _World()
    with set_feature_gate_during_test(features.feature_gate, features.KUBELET_ENSURE_SECRET_PULLED_IMAGES, False):
        world.ensure("present_image", "IfNotPresent")
    assert world.recorder.drain() == ['Normal Pulled Container image "present_image" already present on machine']


def test_always_pulls_a_present_image() -> None:
    world = _World()
    for _ in range(3):
        assert world.ensure("present_image", "Always") == "ref"
        assert world.took() == _PULLED


def test_never_does_not_pull() -> None:
    world = _World()
    error = world.error("missing_image", "Never")
    assert isinstance(error, images.ErrImageNeverPull)
    assert error.message == 'Container image "missing_image" is not present with pull policy of Never'
    assert world.took() == (["GetImageRef"], ["ErrImageNeverPull"])


def test_inspect_failure() -> None:
    world = _World()
    world.images.inspect_err = RuntimeError("unknown inspectError")
    error = world.error("missing_image", "IfNotPresent")
    assert isinstance(error, images.ErrImageInspect)
    assert error.message == 'Failed to inspect image "": unknown inspectError'
    assert world.took() == (["GetImageRef"], ["InspectFailed"])


def test_failed_pulls_back_off() -> None:
    world = _World()
    world.images.pull_err = RuntimeError("404")
    error = world.error("typo_image", "IfNotPresent")
    assert (str(error), error.message) == ("ErrImagePull", "404")
    assert world.recorder.drain()[1] == 'Warning Failed Failed to pull image "typo_image": 404'
    world.took()
    error = world.error("typo_image", "IfNotPresent")
    assert isinstance(error, images.ErrImagePullBackOff)
    assert error.message == 'Back-off pulling image "typo_image": ErrImagePull: 404'
    assert world.took() == (["GetImageRef"], ["BackOff"])
    world.clock.step(10.1)
    assert isinstance(world.error("typo_image", "IfNotPresent"), images.ErrImagePull)
    world.clock.step(10.1)
    assert isinstance(world.error("typo_image", "IfNotPresent"), images.ErrImagePullBackOff), "doubled"
    world.clock.step(10)
    world.images.pull_err = None
    assert world.ensure("typo_image", "IfNotPresent") == "ref"


def test_failures_of_pods_that_are_gone_are_forgotten() -> None:
    world = _World()
    world.images.pull_err = RuntimeError("404")
    for number in range(20):
        world.error(f"typo_image:{number}", "Always")
        world.clock.step(60)
    # A failure is kept for twice the longest backoff.
    assert len(world.manager._prev_pull_err_msg) <= 3


def test_too_many_pulls() -> None:
    world = _World(qps=0.001, burst=1)
    world.ensure("present_image", "Always")
    world.took()
    error = world.error("present_image", "Always")
    assert (str(error), error.message) == ("ErrImagePull", "pull QPS exceeded")
    assert world.took() == ([], ["Pulling", "Failed"])


def test_no_burst_refuses_every_pull() -> None:
    world = _World(qps=5, burst=0)
    assert world.error("present_image", "Always").message == "pull QPS exceeded"


def test_throttle_off_is_the_service_itself() -> None:
    service = _Images()
    assert helpers.throttle_image_pulling(service, 0.0, 5) is service  # type: ignore[arg-type, comparison-overlap]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "RegistryUnavailable: no route",
            images.ErrRegistryUnavailable,
            "image pull failed for img because the registry is unavailable: no route",
        ),
        (
            "SignatureValidationFailed",
            images.ErrSignatureValidationFailed,
            "image pull failed for img because the signature validation failed",
        ),
        ("other", images.ErrImagePull, "other"),
    ],
)
def test_errors_of_the_runtime_are_told_by_their_first_word(
    text: str, kind: type[images.ImageError], message: str
) -> None:
    world = _World()
    world.images.pull_err = RuntimeError(text)
    error = world.error("img", "Always")
    assert type(error) is kind
    assert error.message == message


@pytest.mark.parametrize("image", ["FAILED_IMAGE", "http://url", "", "a:b:c", "x" * 300, "0" * 64])
def test_invalid_names_are_not_pulled(image: str) -> None:
    world = _World()
    error = world.error(image, "Always")
    assert isinstance(error, images.ErrInvalidImageName)
    assert error.message.startswith(f'Failed to apply default image tag "{image}": couldn\'t parse image name')
    assert world.took() == ([], ["InspectFailed"])


def test_the_beginning_of_a_long_name_is_told() -> None:
    error = _World().error("i" * 1_000_000, "Always")
    assert isinstance(error, images.ErrInvalidImageName)
    assert len(error.message) < parsers.MAX_IMAGE_NAME_LENGTH + 200


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("root", "root:latest"),
        ("root:tag", "root:tag"),
        ("root@sha256:" + "a" * 64, "root@sha256:" + "a" * 64),
        ("reg.io:5000/a/b", "reg.io:5000/a/b:latest"),
        ("reg.io:5000/a/b:1", "reg.io:5000/a/b:1"),
    ],
)
def test_default_tag(image: str, expected: str) -> None:
    assert image_manager._apply_default_image_tag(image) == expected


def _secret(name: str, user: str) -> v1.Secret:
    config = f'{{"auths":{{"reg.io":{{"username":"{user}","password":"p"}}}}}}'
    return v1.Secret(
        metadata=metav1.ObjectMeta(name=name, namespace="ns", uid=types.UID(f"uid-{name}")),
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": config.encode()},
    )


def test_pull_secrets_reach_the_runtime() -> None:
    world = _World()
    world.ensure("reg.io/a", "Always", [_secret("one", "alice"), _secret("two", "bob")])
    world.ensure("other.io/a", "Always", [_secret("one", "alice")])
    assert world.images.credentials == [["alice", "bob"], []]


class TestPullRecords:
    """Test what the records of earlier pulls allow."""

    def _world(self, tmp_path: Path, policy: str = "NeverVerifyPreloadedImages") -> _World:
        enforcer = pullmanager.image_pull_credential_verification_policy(policy, ["open.io/*"])
        accessor = pullmanager.FSPullRecordsAccessor(str(tmp_path))
        clock = testingclock.FakeClock()
        service: Any = _Images()
        return _World(pullmanager.PullManager(_CTX, accessor, enforcer, service, clock))

    def _pulls(self, world: _World) -> int:
        return world.images.calls.count("PullImage")

    def test_preloaded_image_is_open_to_all(self, tmp_path: Path) -> None:
        world = self._world(tmp_path)
        world.ensure("present_image", "IfNotPresent")
        assert self._pulls(world) == 0

    def test_image_pulled_without_credentials_is_open_to_all(self, tmp_path: Path) -> None:
        world = self._world(tmp_path)
        for secrets in ([], [_secret("one", "alice")]):
            world.ensure("reg.io/a", "IfNotPresent", secrets if self._pulls(world) else [])
        assert self._pulls(world) == 1

    def test_image_pulled_with_a_secret_is_open_to_that_secret(self, tmp_path: Path) -> None:
        world = self._world(tmp_path)
        for secret in (_secret("one", "alice"), _secret("one", "alice"), _secret("copy", "alice")):
            world.ensure("reg.io/a", "IfNotPresent", [secret])
        assert self._pulls(world) == 1
        world.ensure("reg.io/a", "IfNotPresent", [_secret("other", "mallory")])
        assert self._pulls(world) == 2
        world.ensure("reg.io/a", "IfNotPresent", [])
        assert self._pulls(world) == 3

    def test_changed_secret_is_still_that_secret(self, tmp_path: Path) -> None:
        world = self._world(tmp_path)
        world.ensure("reg.io/a", "IfNotPresent", [_secret("one", "alice")])
        world.ensure("reg.io/a", "IfNotPresent", [_secret("one", "renamed")])
        assert self._pulls(world) == 1

    def test_records_outlive_the_kubelet(self, tmp_path: Path) -> None:
        world = self._world(tmp_path)
        world.ensure("reg.io/a", "IfNotPresent", [_secret("one", "alice")])
        again = self._world(tmp_path)
        again.images.present.add("reg.io/a:latest")
        again.ensure("reg.io/a", "IfNotPresent", [_secret("one", "alice")])
        assert self._pulls(again) == 0
        again.ensure("reg.io/a", "IfNotPresent", [])
        assert self._pulls(again) == 1

    def test_closed_image_with_policy_never_looks_absent(self, tmp_path: Path) -> None:
        world = self._world(tmp_path)
        world.ensure("reg.io/a", "IfNotPresent", [_secret("one", "alice")])
        error = world.error("reg.io/a", "Never")
        assert error.message == 'Container image "reg.io/a" is not present with pull policy of Never'

    @pytest.mark.parametrize(
        ("policy", "image", "pulls"),
        [
            ("AlwaysVerify", "present_image", 1),
            ("NeverVerify", "present_image", 0),
            ("NeverVerifyAllowlistedImages", "present_image", 1),
            ("NeverVerifyAllowlistedImages", "open.io/a", 0),
        ],
    )
    def test_policies(self, tmp_path: Path, policy: str, image: str, pulls: int) -> None:
        world = self._world(tmp_path, policy)
        world.images.present.add("open.io/a:latest")
        world.ensure(image, "IfNotPresent")
        assert self._pulls(world) == pulls

    def test_intent_of_a_dead_kubelet_closes_the_image(self, tmp_path: Path) -> None:
        pullmanager.FSPullRecordsAccessor(str(tmp_path)).write_image_pull_intent("known:1")
        world = self._world(tmp_path)
        world.images.present.add("known:1")
        world.ensure("known:1", "IfNotPresent")
        assert self._pulls(world) == 1
        assert not list((tmp_path / "image_manager" / "pulling").iterdir())

    def test_failed_pull_leaves_no_intent(self, tmp_path: Path) -> None:
        world = self._world(tmp_path)
        world.images.pull_err = RuntimeError("404")
        world.error("reg.io/a", "IfNotPresent")
        assert not list((tmp_path / "image_manager" / "pulling").iterdir())
        assert not list((tmp_path / "image_manager" / "pulled").iterdir())

    def test_unreadable_record_forces_a_pull(self, tmp_path: Path) -> None:
        world = self._world(tmp_path)
        world.ensure("reg.io/a", "IfNotPresent")
        (record_file,) = (tmp_path / "image_manager" / "pulled").iterdir()
        record_file.write_text("{")
        world.ensure("reg.io/a", "IfNotPresent")
        assert self._pulls(world) == 2

    def test_prune(self, tmp_path: Path) -> None:
        accessor = pullmanager.FSPullRecordsAccessor(str(tmp_path))
        clock = testingclock.FakeClock()
        service: Any = _Images()
        enforcer = pullmanager.image_pull_credential_verification_policy("AlwaysVerify", [])
        manager = pullmanager.PullManager(_CTX, accessor, enforcer, service, clock)
        open_to_all = pullmanager.ImagePullCredentials(node_pods_accessible=True)
        for image in ("gone", "left"):
            manager.record_pull_intent(image)
            manager.record_image_pulled(_CTX, image, f"ref-{image}", open_to_all)
        clock.step(1)
        began = clock.now()
        manager.record_pull_intent("new")
        manager.record_image_pulled(_CTX, "new", "ref-new", open_to_all)
        manager.prune_unknown_records(_CTX, ["ref-left"], began)
        kept = {r.image_ref for r in accessor.list_image_pulled_records()}
        assert kept == {"ref-left", "ref-new"}


@pytest.mark.parametrize(
    "pattern", ["", "*", "/*", " a", "a*/b", "reg.io/a:tag", "reg.io/*/b", "reg.io/a@sha256:" + "0" * 64]
)
def test_bad_allowlist_patterns(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        pullmanager.validate_allowlist_images_patterns([pattern])


def test_unknown_verification_policy() -> None:
    with pytest.raises(ValueError, match="unknown image pull credential verification policy: Sometimes"):
        pullmanager.image_pull_credential_verification_policy("Sometimes", [])


def test_bad_pull_secret_is_named_and_nothing_is_pulled() -> None:
    world = _World()
    secret = _secret("broken", "u")
    secret.data = {v1.DOCKER_CONFIG_JSON_KEY: b"not JSON: hunter2"}
    with pytest.raises(images.ErrImagePull) as caught:
        world.ensure("reg.io/a", v1.PULL_ALWAYS, [secret])
    assert caught.value.message == (
        'image pull secret "ns/broken", key ".dockerconfigjson": error occurred while trying to unmarshal json'
    )
    assert world.recorder.drain() == [f'Warning Failed Failed to pull image "reg.io/a:latest": {caught.value.message}']
    assert world.images.calls == []


def test_external_credentials_come_after_those_of_the_node() -> None:
    world = _World()
    asked: list[tuple[str, str, str, str]] = []
    external = credentialprovider.BasicDockerKeyring()
    external.add(None, {"reg.io": credentialprovider.DockerConfigEntry("plugin", "p")})

    def keyring(*pod: str) -> credentialprovider.DockerKeyring:
        asked.append(pod)  # type: ignore[arg-type]
        return external

    world.manager._external_credentials = keyring
    node = credentialprovider.BasicDockerKeyring()
    node.add(None, {"reg.io": credentialprovider.DockerConfigEntry("node", "p")})
    world.manager._node_keyring = node
    world.ensure("reg.io/a", v1.PULL_IF_NOT_PRESENT, [_secret("s", "pod")])
    assert world.images.credentials == [["pod", "node", "plugin"]]
    assert asked == [("ns", "pod", "uid", "")]


def test_runtime_is_told_of_annotations_and_handler() -> None:
    world = _World()
    specs: list[kubecontainer.ImageSpec] = []
    get_image_ref = world.images.get_image_ref

    def record_spec(ctx: golang.Context, image: kubecontainer.ImageSpec) -> str:
        specs.append(image)
        return get_image_ref(ctx, image)

    world.images.get_image_ref = record_spec  # type: ignore[method-assign]
    a_pod = v1.deepcopy(_POD)
    a_pod.metadata.annotations = {"a": "b"}
    digested = "reg.io/a:tag@sha256:" + "0" * 64
    for image in ("missing_image", digested):
        world.manager.ensure_image_exists(_CTX, None, a_pod, image, [], None, "handler", v1.PULL_IF_NOT_PRESENT)
    assert [(spec.image, spec.runtime_handler, spec.annotations) for spec in specs] == [
        ("missing_image:latest", "handler", [kubecontainer.Annotation("a", "b")]),
        (digested, "handler", [kubecontainer.Annotation("a", "b")]),
    ]


def test_pull_intent_that_cannot_be_recorded() -> None:
    class _FullDisk(pullmanager.NoopImagePullManager):
        def record_pull_intent(self, image: str) -> None:
            raise OSError("no space left on device")

    err = _World(_FullDisk()).error("missing_image", v1.PULL_ALWAYS)
    assert (str(err), err.message) == (
        "ErrImagePull",
        'Failed to record image pull intent for container image "missing_image": no space left on device',
    )


def _requests(policy: str, present: str, required: str) -> float:
    return metricstesting.value(metrics.ENSURE_IMAGE_REQUESTS_COUNTER.labels(policy, present, required))


@pytest.mark.parametrize(
    ("image", "policy", "present", "required"),
    [
        ("missing_image", v1.PULL_IF_NOT_PRESENT, "false", "true"),
        ("present_image", v1.PULL_IF_NOT_PRESENT, "true", "false"),
        ("present_image", v1.PULL_ALWAYS, "unknown", "true"),
        ("missing_image", v1.PULL_NEVER, "false", "unknown"),
        ("Not/An/Image", v1.PULL_ALWAYS, "unknown", "unknown"),
    ],
)
def test_requests_are_counted(image: str, policy: str, present: str, required: str) -> None:
    before = _requests(policy.lower(), present, required)
    try:
        _World().ensure(image, policy)
    except images.ImageError:
        pass
    assert _requests(policy.lower(), present, required) == before + 1


def _pull_at_once(a_puller: puller.ImagePuller, count: int) -> list[golang.Thread]:
    request = puller.ImagePullRequest(_CTX, kubecontainer.ImageSpec(image="img"), [], None)
    return [golang.go(a_puller.pull_image, request, name=f"pull-{i}") for i in range(count)]


class _Gate:
    """Hold pulls until they are released, and count the waiting ones."""

    def __init__(self) -> None:
        self.entered: golang.Channel[None] = golang.Channel(100)
        self.release: golang.Channel[None] = golang.Channel()

    def __call__(self) -> None:
        self.entered.send(None)
        self.release.recv(timeout=30)


@pytest.mark.parametrize(
    ("limit", "serial", "at_once"), [(None, False, 4), (0, False, 4), (2, False, 2), (None, True, 1)]
)
def test_pulls_at_the_same_time(limit: int | None, serial: bool, at_once: int) -> None:
    service: Any = _Images()
    gate = service.on_pull = _Gate()
    a_puller = puller.SerialImagePuller(service) if serial else puller.ParallelImagePuller(service, limit)
    threads = _pull_at_once(a_puller, 4)
    for _ in range(at_once):
        assert gate.entered.recv(timeout=30)[1]
    if a_puller._turns is not None:
        turns = a_puller._turns
        wait_for("the other pulls wait for their turn", lambda: len(turns._waiting) == 4 - at_once)
    assert not len(gate.entered)
    gate.release.close()
    for thread in threads:
        thread.join(timeout=30)
    assert service.calls.count("PullImage") == 4


def test_failed_pull_passes_the_turn_on() -> None:
    service: Any = _Images()
    service.pull_err = RuntimeError("404")
    serial = puller.SerialImagePuller(service)
    request = puller.ImagePullRequest(_CTX, kubecontainer.ImageSpec(image="img"), [], None)
    assert [str(serial.pull_image(request).err) for _ in range(2)] == ["404", "404"]


@pytest.mark.parametrize("serial", [True, False])
def test_pull_of_a_deleted_pod_does_not_wait_for_its_turn(serial: bool) -> None:
    service: Any = _Images()
    gate = service.on_pull = _Gate()
    a_puller: puller.ImagePuller = puller.SerialImagePuller(service)
    if not serial:
        a_puller = puller.ParallelImagePuller(service, 1)
    (busy,) = _pull_at_once(a_puller, 1)
    assert gate.entered.recv(timeout=30)[1]
    ctx, cancel = golang.with_cancel(_CTX)
    cancel()
    request = puller.ImagePullRequest(ctx, kubecontainer.ImageSpec(image="img"), [], None)
    assert isinstance(a_puller.pull_image(request).err, golang.Canceled)
    (later,) = _pull_at_once(a_puller, 1)
    gate.release.close()
    for thread in (busy, later):
        thread.join(timeout=30)
    assert service.calls.count("PullImage") == 2


@failures
def test_accident_of_one_who_waits_passes_the_turn_on(err: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiting pull that fails passes its turn on, so that other images can still be pulled."""
    service: Any = _Images()
    gate = service.on_pull = _Gate()
    serial = puller.SerialImagePuller(service)
    (busy,) = _pull_at_once(serial, 1)
    assert gate.entered.recv(timeout=30)[1]
    monkeypatch.setattr(klog, "info_s", failing_once(klog.info_s, err, "waits for its turn"))
    with pytest.raises(type(err)):
        serial.pull_image(puller.ImagePullRequest(_CTX, kubecontainer.ImageSpec(image="img"), [], None))
    (later,) = _pull_at_once(serial, 1)
    gate.release.close()
    for thread in (busy, later):
        thread.join(timeout=30)
    assert service.calls.count("PullImage") == 2


@pytest.mark.parametrize("critical_first", [False, True])
def test_critical_pods_are_first_for_who_wants_it(critical_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World(critical_first=critical_first)
    asked: list[bool] = []
    pull = world.manager._puller.pull_image

    def note_and_pull(request: puller.ImagePullRequest) -> puller.PullResult:
        asked.append(request.first)
        return pull(request)

    monkeypatch.setattr(world.manager._puller, "pull_image", note_and_pull)
    for priority in (0, 2 * 10**9):
        pod = v1.Pod(metadata=_POD.metadata, spec=v1.PodSpec(priority=priority))
        world.manager.ensure_image_exists(_CTX, v1.ObjectReference(name="pod"), pod, "new", [], None, "", "Always")
    assert asked == [False, critical_first]


@pytest.mark.parametrize("serial", [True, False])
def test_those_that_go_first(serial: bool) -> None:
    service: Any = _Images()
    gate = service.on_pull = _Gate()
    a_puller = puller.SerialImagePuller(service) if serial else puller.ParallelImagePuller(service, 1)
    order: list[str] = []

    def pull(pod: str, first: bool) -> None:
        spec = kubecontainer.ImageSpec(image="img")
        a_puller.pull_image(puller.ImagePullRequest(_CTX, spec, [], None, pod, first))
        order.append(pod)

    threads = []
    for number, (pod, first) in enumerate([("busy", False), ("b", False), ("a", False), ("z", True), ("y", True)]):
        threads.append(golang.go(pull, pod, first, name=f"pull-{pod}"))
        # The pulls must be requested in this order, and the first one gets its turn immediately.
        if number == 0:
            assert gate.entered.recv(timeout=30)[1]
        else:
            wait_until_equal("pulls that wait for their turn", lambda: len(a_puller._turns._waiting), number)  # type: ignore[union-attr]
    for done in range(1, 6):
        gate.release.send(None)
        wait_until_equal("images that are pulled", lambda: len(order), done)
    for thread in threads:
        thread.join(timeout=30)
    assert order == ["busy", "z", "y", "b", "a"]


def test_who_waits_is_told_how_many_are_ahead(capfd: pytest.CaptureFixture[str]) -> None:
    service: Any = _Images()
    gate = service.on_pull = _Gate()
    a_puller = puller.ParallelImagePuller(service, 1)
    threads = _pull_at_once(a_puller, 3)
    wait_for("two pulls wait for their turn", lambda: len(a_puller._turns._waiting) == 2)  # type: ignore[union-attr]
    gate.release.close()
    for thread in threads:
        thread.join(timeout=30)
    lines = [line for line in capfd.readouterr().err.splitlines() if "waits for its turn" in line]
    # Each waiting pull logs its own line, so the order of the lines may differ from the order of the turns.
    assert sorted(re.findall(r"waitingAhead=\d+", "".join(lines))) == ["waitingAhead=0", "waitingAhead=1"]
    assert all("maxParallelImagePulls=1" in line for line in lines)


class _FileSystem:
    """Represent the images' file system, which contains more at every call."""

    def __init__(self) -> None:
        self.used = 0
        self.err: Exception | None = None

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        if self.err is not None:
            raise self.err
        self.used += 3 << 20
        usage = runtimeapi.FilesystemUsage(used_bytes=runtimeapi.UInt64Value(value=self.used))
        return runtimeapi.ImageFsInfoResponse(image_filesystems=[usage])


def test_long_pulls_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = testingclock.FakeClock()
    service: Any = _FileSystem()
    watcher = progress.PullProgress(service, clock)
    lines: list[tuple[str, ...]] = []
    monkeypatch.setattr(klog, "info_s", lambda message, **values: lines.append(tuple(values.values())))

    def step_until_told(count: int) -> None:
        clock.wait_for_waiters()
        clock.step(progress.REPORT_PERIOD)
        wait_until_equal("lines", lambda: len(lines), count)

    with watcher.watch("big", "ns/pod"):
        step_until_told(1)
        with watcher.watch("late", "ns/other"):
            service.err = RuntimeError("no figures")
            step_until_told(3)
            service.err = None
            step_until_told(5)
        step_until_told(6)
    assert lines == [
        ("big", "ns/pod", "15s", "3.0 MiB", "unknown"),
        ("big", "ns/pod", "30s", "unknown", "unknown"),
        ("late", "ns/other", "15s", "unknown", "unknown"),
        ("big", "ns/pod", "45s", "6.0 MiB", "unknown"),
        ("late", "ns/other", "30s", "6.0 MiB", "unknown"),
        ("big", "ns/pod", "1m0s", "9.0 MiB", "3.0 MiB"),
    ]


def test_the_thread_that_tells_of_pulls_lives_only_while_there_are_some() -> None:
    def running() -> bool:
        return bool(threads_named("image-pull-progress"))

    service: Any = _FileSystem()
    watcher = progress.PullProgress(service, testingclock.FakeClock())
    for _ in range(2):
        with watcher.watch("a", "ns/pod"), watcher.watch("b", "ns/pod"):
            assert running()
        wait_for("the thread that tells of pulls has ended", lambda: not running())


def test_pulls_are_watched_again_after_a_thread_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **names: object) -> None:
        raise RuntimeError("can't start new thread")

    service: Any = _FileSystem()
    watcher = progress.PullProgress(service, testingclock.FakeClock())
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="can't start new thread"):
        patch.setattr(golang, "go", refuse)
        with watcher.watch("a", "ns/pod"):
            pass
    with watcher.watch("b", "ns/pod"):
        assert [pull.image for pull in watcher._pulls] == ["b"]
