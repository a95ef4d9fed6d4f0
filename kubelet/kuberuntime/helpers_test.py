"""Test the helpers of the runtime manager.

Go: pkg/kubelet/kuberuntime/helpers_test.go, convert_test.go, kuberuntime_image_test.go,
pkg/kubelet/kuberuntime/util/util_test.go
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet.cri import errors as crierror
from kubelet.cri import testing as critesting
from kubelet.kuberuntime import (
    get_backoff_key,
    helpers,
    to_kube_container_image_spec,
    to_runtime_api_image_spec,
)
from kubelet.kuberuntime import util as runtimeutil
from kubelet.kuberuntime.kuberuntime_image import ImageMethods, PullErrors
from pkg import credentialprovider, features, golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.golang.testing import frames_kept_after
from pkg.util import parsers

_CTX = golang.background()
_EXITED = kubecontainer.CONTAINER_STATE_EXITED


@pytest.fixture
def service() -> critesting.FakeImageService:
    return critesting.FakeImageService()


@pytest.fixture
def images(service: critesting.FakeImageService) -> ImageMethods:
    return ImageMethods(image_service=service)


@pytest.mark.parametrize(
    ("state", "code", "reason", "failed"),
    [
        (_EXITED, 0, "", False),
        (_EXITED, 1, "", True),
        (_EXITED, 0, "OOMKilled", True),
        (kubecontainer.CONTAINER_STATE_UNKNOWN, 0, "", True),
        (kubecontainer.CONTAINER_STATE_RUNNING, 0, "", False),
    ],
)
def test_is_init_container_failed(state: kubecontainer.State, code: int, reason: str, failed: bool) -> None:
    status = kubecontainer.Status(state=state, exit_code=code, reason=reason)
    assert helpers.is_init_container_failed(status) is failed


def test_backoff_key_changes_with_what_may_mend_the_crash() -> None:
    def pod(uid: str = "u") -> v1.Pod:
        return v1.Pod(metadata=metav1.ObjectMeta(name="n", namespace="ns", uid=types.UID(uid)))

    def container(image: str = "i", memory: str = "1Gi", env: str = "") -> v1.Container:
        result = v1.Container(name="c", image=image, env=[v1.EnvVar(name="A", value=env)])
        result.resources.limits["memory"] = resource.must_parse(memory)
        return result

    key = get_backoff_key(pod(), container())
    assert get_backoff_key(pod(), container(env="x")) == key
    others = {
        get_backoff_key(pod("v"), container()),
        get_backoff_key(pod(), container(image="j")),
        get_backoff_key(pod(), container(memory="2Gi")),
    }
    assert len(others | {key}) == 4


def test_no_long_name_of_an_image_is_kept_with_its_back_off() -> None:
    """A backoff key stays short, although a pod may name images with names of a megabyte, which cannot start."""
    pod, limit = v1.Pod(), parsers.MAX_IMAGE_NAME_LENGTH
    assert len(get_backoff_key(pod, v1.Container(name="c", image="i" * 1_000_000))) < limit + 100


def test_containers_are_newest_first_then_by_id() -> None:
    containers = [runtimeapi.Container(id=i, created_at=t) for i, t in (("b", 1), ("c", 2), ("a", 1))]
    assert [c.id for c in helpers.sort_containers_by_created_then_id(containers)] == ["c", "a", "b"]


def test_sandboxes_are_newest_first_by_attempt_then_time_then_id() -> None:
    sandboxes = [
        runtimeapi.PodSandbox(id=i, created_at=t, metadata=runtimeapi.PodSandboxMetadata(attempt=a))
        for i, t, a in (("old", 9, 0), ("b", 1, 1), ("c", 2, 1), ("a", 1, 1))
    ]
    assert helpers.sandbox_ids(sandboxes) == ["c", "a", "b", "old"]


def test_time_from_nanoseconds() -> None:
    assert helpers.time_from_nanoseconds(1_500_000_999_123_456_789) == datetime(
        2017, 7, 14, 2, 56, 39, 123456, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (runtimeapi.CONTAINER_CREATED, kubecontainer.CONTAINER_STATE_CREATED),
        (runtimeapi.CONTAINER_RUNNING, kubecontainer.CONTAINER_STATE_RUNNING),
        (runtimeapi.CONTAINER_EXITED, kubecontainer.CONTAINER_STATE_EXITED),
        (runtimeapi.CONTAINER_UNKNOWN, kubecontainer.CONTAINER_STATE_UNKNOWN),
        (99, kubecontainer.CONTAINER_STATE_UNKNOWN),
    ],
)
def test_to_kube_container_state(state: int, expected: kubecontainer.State) -> None:
    assert helpers.to_kube_container_state(state) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [("TCP", runtimeapi.TCP), ("UDP", runtimeapi.UDP), ("SCTP", runtimeapi.SCTP), ("odd", runtimeapi.TCP)],
)
def test_to_runtime_protocol(protocol: str, expected: int) -> None:
    assert helpers.to_runtime_protocol(protocol) == expected


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        ("SIGTERM", runtimeapi.SIGTERM),
        ("SIGRTMIN+3", runtimeapi.SIGRTMINPLUS3),
        ("SIGRTMAX-14", runtimeapi.SIGRTMAXMINUS14),
        ("SIGRTMAX", runtimeapi.SIGRTMAX),
        ("SIGODD", runtimeapi.RUNTIME_DEFAULT),
        (None, None),
    ],
)
def test_stop_signal(signal: str | None, expected: int | None) -> None:
    container = v1.Container(lifecycle=v1.Lifecycle(stop_signal=signal))
    assert helpers.get_container_config_stop_signal(container) is None, "the feature is off by default"
    with set_feature_gate_during_test(features.feature_gate, features.CONTAINER_STOP_SIGNALS, True):
        got = helpers.get_container_config_stop_signal(container)
    assert got == expected
    if got is not None and got != runtimeapi.RUNTIME_DEFAULT:
        assert helpers.runtime_signal_to_string(got) == signal


def test_stop_signal_of_a_newer_runtime() -> None:
    status = runtimeapi.ContainerStatus(stop_signal=1000)  # type: ignore[arg-type]
    assert helpers.runtime_signal_to_string(status.stop_signal) == "1000"


def test_app_armor_profile_must_make_sense() -> None:
    pod = v1.Pod(spec=v1.PodSpec(containers=[]))
    for profile, fault in (
        (v1.AppArmorProfile(type="Localhost"), "missing localhost apparmor profile name"),
        (v1.AppArmorProfile(type="Odd"), 'unknown apparmor profile type: "Odd"'),
    ):
        container = v1.Container(security_context=v1.SecurityContext(app_armor_profile=profile))
        with pytest.raises(ValueError, match=fault):
            helpers.get_app_armor_profile(pod, container)
    assert helpers.get_app_armor_profile(pod, v1.Container()) == (None, "")


def test_container_without_image_is_not_converted(service: critesting.FakeImageService) -> None:
    methods = helpers.HelperMethods(runtime_name="fakeRuntime", image_service=service, seccomp_profile_root="/seccomp")
    with pytest.raises(ValueError, match="unable to convert"):
        methods.to_kube_container(runtimeapi.Container(id="c"))
    with pytest.raises(ValueError, match="unable to convert"):
        methods.sandbox_to_kube_container(runtimeapi.PodSandbox())


@pytest.mark.parametrize(("name", "uid"), [("ns_pod_123", "123"), ("123", "123")])
def test_pod_uid_from_logs_directory(name: str, uid: str) -> None:
    assert helpers.parse_pod_uid_from_logs_directory(name) == uid


def test_image_specs() -> None:
    image = runtimeapi.Image(
        id="id", spec=runtimeapi.ImageSpec(annotations={"b": "2", "a": "1"}, runtime_handler="kata")
    )
    spec = to_kube_container_image_spec(image)
    assert [a.name for a in spec.annotations] == ["a", "b"]
    assert (spec.image, spec.runtime_handler) == ("id", "")
    with set_feature_gate_during_test(features.feature_gate, features.RUNTIME_CLASS_IN_IMAGE_CRI_API, True):
        spec = to_kube_container_image_spec(image)
        assert spec.runtime_handler == "kata"
        assert to_runtime_api_image_spec(spec) == runtimeapi.ImageSpec(
            image="id", annotations={"a": "1", "b": "2"}, runtime_handler="kata"
        )
    assert to_runtime_api_image_spec(spec).runtime_handler == ""


def _creds(name: str) -> credentialprovider.TrackedAuthConfig:
    return credentialprovider.TrackedAuthConfig(credentialprovider.AuthConfig(username=name))


def _refused(message: str) -> crierror.RemoteError:
    return crierror.RemoteError(grpc.StatusCode.UNKNOWN, message)


def test_pull_tries_credentials_in_order(service: critesting.FakeImageService, images: ImageMethods) -> None:
    service.inject_error("PullImage", _refused("no"))
    ref, used = images.pull_image(
        _CTX, kubecontainer.ImageSpec(image="img"), [_creds("a"), _creds("b"), _creds("c")], None
    )
    assert (ref, used) == ("img", _creds("b"))
    assert [args[1].username for args in service.requests("PullImage")] == ["a", "b"]


def test_pull_refused_to_all_credentials(service: critesting.FakeImageService, images: ImageMethods) -> None:
    for message in ("no", "no", "never"):
        service.inject_error("PullImage", _refused(message))
    with pytest.raises(PullErrors) as caught:
        images.pull_image(_CTX, kubecontainer.ImageSpec(image="img"), [_creds("a"), _creds("b"), _creds("c")], None)
    assert str(caught.value) == ("[rpc error: code = Unknown desc = no, rpc error: code = Unknown desc = never]")


def test_refused_pull_leaves_nothing_for_the_garbage_collector(
    service: critesting.FakeImageService, images: ImageMethods
) -> None:
    for _ in range(2):
        service.inject_error("PullImage", _refused("no"))
    spec = kubecontainer.ImageSpec(image="img")
    assert frames_kept_after(lambda: images.pull_image(_CTX, spec, [_creds("a"), _creds("b")], None)) == []
    assert len(service.requests("PullImage")) == 2


def test_images(service: critesting.FakeImageService, images: ImageMethods) -> None:
    service.set_fake_images(["1111", "2222"])
    service.images["2222"].pinned = True
    service.images["2222"].size = 9
    spec = kubecontainer.ImageSpec(image="2222")
    assert [(i.id, i.pinned, i.size) for i in images.list_images(_CTX)] == [
        ("1111", False, 1),
        ("2222", True, 9),
    ]
    assert images.get_image_ref(_CTX, spec) == "2222"
    assert images.get_image_size(_CTX, spec) == 9
    assert images.image_stats(_CTX).total_storage_bytes == 10
    images.remove_image(_CTX, spec)
    assert images.get_image_ref(_CTX, spec) == ""
    assert images.get_image_size(_CTX, spec) == 0


def test_size_of_an_image_is_one_that_the_api_server_takes(
    service: critesting.FakeImageService, images: ImageMethods
) -> None:
    service.set_fake_images(["1111"])
    service.images["1111"].size = 2**64 - 1
    (image,) = images.list_images(_CTX)
    status = v1.NodeStatus(images=[v1.ContainerImage(size_bytes=image.size)])
    assert codec.decode_json(codec.encode_json(status), v1.NodeStatus) == status


@pytest.mark.parametrize("method", ["ListImages", "ImageStatus", "RemoveImage", "PullImage", "ImageFsInfo"])
def test_image_errors_are_the_runtimes(service: critesting.FakeImageService, images: ImageMethods, method: str) -> None:
    service.inject_error(method, _refused("test-error"))
    spec = kubecontainer.ImageSpec(image="img")
    calls: dict[str, Callable[[], object]] = {
        "ListImages": lambda: images.list_images(_CTX),
        "ImageStatus": lambda: images.get_image_ref(_CTX, spec),
        "RemoveImage": lambda: images.remove_image(_CTX, spec),
        "PullImage": lambda: images.pull_image(_CTX, spec, [], None),
        "ImageFsInfo": lambda: images.image_fs_info(_CTX),
    }
    with pytest.raises(crierror.RemoteError, match="test-error"):
        calls[method]()


def _sandbox(attempt: int = 0, **fields: object) -> runtimeapi.PodSandboxStatus:
    values: dict[str, object] = {
        "id": "sandbox",
        "state": runtimeapi.SANDBOX_READY,
        "network": runtimeapi.PodSandboxNetworkStatus(ip="10.0.0.1"),
        "metadata": runtimeapi.PodSandboxMetadata(attempt=attempt),
    }
    return runtimeapi.PodSandboxStatus(**(values | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sandboxes", "host_network", "expected"),
    [
        ([], False, (True, 0, "")),
        ([_sandbox()], False, (False, 0, "sandbox")),
        ([_sandbox(1), _sandbox()], False, (True, 2, "sandbox")),
        ([_sandbox(1, state=runtimeapi.SANDBOX_NOTREADY), _sandbox()], False, (True, 2, "sandbox")),
        ([_sandbox()], True, (True, 1, "")),
        ([_sandbox(network=runtimeapi.PodSandboxNetworkStatus())], False, (True, 1, "sandbox")),
        ([_sandbox(network=None)], False, (False, 0, "sandbox")),
    ],
    ids=["none", "good", "two ready", "latest not ready", "other network", "no IP", "IP unknown"],
)
def test_pod_sandbox_changed(
    sandboxes: list[runtimeapi.PodSandboxStatus], host_network: bool, expected: tuple[bool, int, str]
) -> None:
    pod = v1.Pod(spec=v1.PodSpec(containers=[], host_network=host_network))
    status = kubecontainer.PodStatus(sandbox_statuses=sandboxes)
    assert runtimeutil.pod_sandbox_changed(pod, status) == runtimeutil.SandboxChange(*expected)
