"""Test sandboxes and their security settings.

Go: pkg/kubelet/kuberuntime/kuberuntime_sandbox_test.go, kuberuntime_sandbox_linux_test.go

The tests of security settings correspond to those in security_context_others_test.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import runtimeclass
from kubelet.cri import testing as critesting
from kubelet.kuberuntime import testing
from kubelet.kuberuntime.helpers import HelperMethods
from kubelet.kuberuntime.kuberuntime_sandbox import SandboxError
from kubelet.kuberuntime.security_context import verify_run_as_non_root
from pkg import golang
from pkg.api.core import v1
from pkg.api.node import v1 as nodev1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import FakeClientset

_CTX = golang.background()
_SELINUX = v1.SELinuxOptions(user="u", role="r", type="t", level="s0:c1")


def _pod(**spec: Any) -> v1.Pod:
    values: dict[str, Any] = {"containers": [v1.Container(name="foo", image="busybox")]}
    return v1.Pod(
        metadata=metav1.ObjectMeta(uid=types.UID("12345678"), name="bar", namespace="new"),
        spec=v1.PodSpec(**(values | spec)),
    )


def test_generate_pod_sandbox_config(fake: testing.TestRuntime) -> None:
    fake.helper.host_name = "bar-host"
    fake.helper.dns_servers = ["10.0.0.10"]
    ports = [
        v1.ContainerPort(container_port=80, host_port=8080, protocol="TCP", host_ip="127.0.0.1"),
        v1.ContainerPort(container_port=53, protocol="UDP"),
    ]
    pod = _pod(containers=[v1.Container(name="foo", ports=ports)])
    config = fake.manager.generate_pod_sandbox_config(_CTX, pod, 3)
    assert config.metadata == runtimeapi.PodSandboxMetadata(name="bar", namespace="new", uid="12345678", attempt=3)
    assert config.hostname == "bar-host"
    assert config.log_directory == "/var/log/pods/new_bar_12345678"
    assert list(config.dns_config.servers) == ["10.0.0.10"]
    assert [(p.host_ip, p.host_port, p.container_port, p.protocol) for p in config.port_mappings] == [
        ("127.0.0.1", 8080, 80, runtimeapi.TCP),
        ("", 0, 53, runtimeapi.UDP),
    ]
    sc = config.linux.security_context
    assert sc.seccomp.profile_type == runtimeapi.SecurityProfile.RuntimeDefault


def test_host_network_pod_has_no_hostname(fake: testing.TestRuntime) -> None:
    fake.helper.host_name = "bar-host"
    config = fake.manager.generate_pod_sandbox_config(_CTX, _pod(host_network=True), 0)
    assert config.hostname == ""
    assert config.linux.security_context.namespace_options.network == runtimeapi.NODE


def test_sandbox_takes_the_pods_security_context(fake: testing.TestRuntime) -> None:
    sc = v1.PodSecurityContext(
        run_as_user=0,
        run_as_group=1,
        fs_group=2,
        supplemental_groups=[3, 4],
        supplemental_groups_policy="Strict",
        se_linux_options=_SELINUX,
    )
    fake.helper.get_extra_supplemental_groups_for_pod = lambda pod: [9]  # type: ignore[method-assign]
    got = fake.manager.generate_pod_sandbox_config(_CTX, _pod(security_context=sc), 0).linux.security_context
    assert got.run_as_user.value == 0 and got.HasField("run_as_user")
    assert got.run_as_group.value == 1
    assert list(got.supplemental_groups) == [2, 9, 3, 4]
    assert got.supplemental_groups_policy == runtimeapi.Strict
    assert got.selinux_options == runtimeapi.SELinuxOption(user="u", role="r", type="t", level="s0:c1")


def test_container_takes_the_groups_in_its_own_order(fake: testing.TestRuntime) -> None:
    sc = v1.PodSecurityContext(fs_group=2, supplemental_groups=[3, 4], supplemental_groups_policy="Strict")
    fake.helper.get_extra_supplemental_groups_for_pod = lambda pod: [9]  # type: ignore[method-assign]
    pod = _pod(security_context=sc)
    got = fake.manager.determine_effective_security_context(pod, pod.spec.containers[0], 7, "")
    assert list(got.supplemental_groups) == [2, 3, 4, 9]
    assert got.supplemental_groups_policy == runtimeapi.Strict
    assert got.run_as_user.value == 7


def test_unknown_supplemental_groups_policy_is_refused(fake: testing.TestRuntime) -> None:
    pod = _pod(security_context=v1.PodSecurityContext(supplemental_groups_policy="Odd"))
    with pytest.raises(ValueError, match="unsupported supplementalGroupsPolicy: Odd"):
        fake.manager.generate_pod_sandbox_config(_CTX, pod, 0)
    with pytest.raises(ValueError, match="unsupported supplementalGroupsPolicy: Odd"):
        fake.manager.determine_effective_security_context(pod, pod.spec.containers[0], None, "")


def test_sandbox_resources_leave_overhead_apart(tmp_path: Path) -> None:
    fake = testing.create_test_runtime_manager(str(tmp_path), cpu_cfs_quota=True)
    quantity = resource.must_parse
    amounts = v1.ResourceRequirements(
        requests={"cpu": quantity("250m"), "memory": quantity("128Mi")},
        limits={"cpu": quantity("500m"), "memory": quantity("256Mi")},
    )
    pod = _pod(
        containers=[v1.Container(name=name, resources=amounts) for name in ("a", "b")],
        overhead={"cpu": quantity("100m"), "memory": quantity("64Mi")},
    )
    linux = fake.manager.generate_pod_sandbox_config(_CTX, pod, 0).linux
    assert linux.resources == runtimeapi.LinuxContainerResources(
        cpu_period=100000, cpu_quota=100000, cpu_shares=512, memory_limit_in_bytes=512 << 20
    )
    assert linux.overhead == runtimeapi.LinuxContainerResources(
        cpu_period=100000, cpu_quota=10000, cpu_shares=102, memory_limit_in_bytes=64 << 20
    )


def test_create_pod_sandbox_makes_the_log_directory(fake: testing.TestRuntime) -> None:
    made: list[tuple[str, int]] = []
    fake.os.mkdir_all_fn = lambda path, perm: made.append((path, perm))
    assert fake.manager.create_pod_sandbox(_CTX, _pod(), 1) == "bar_new_12345678_1"
    assert made == [("/var/log/pods/new_bar_12345678", 0o755)]
    assert fake.runtime.called() == ["RunPodSandbox"]


def test_create_pod_sandbox_without_log_directory(fake: testing.TestRuntime) -> None:
    def full(path: str, perm: int) -> None:
        raise OSError(28, "No space left on device", path)

    fake.os.mkdir_all_fn = full
    with pytest.raises(SandboxError) as caught:
        fake.manager.create_pod_sandbox(_CTX, _pod(), 0)
    assert caught.value.message.startswith(
        'Failed to create log directory for pod "bar_new(12345678)": [Errno 28] No space left on device'
    )


@pytest.fixture
def runtime_classes() -> Iterator[runtimeclass.Manager]:
    """Run a manager with one RuntimeClass, `sandboxed`."""
    sandboxed = nodev1.RuntimeClass(metadata=metav1.ObjectMeta(name="sandboxed"), handler="kata")
    manager = runtimeclass.Manager(FakeClientset(sandboxed))
    ctx, cancel = golang.with_cancel(_CTX)
    manager.start(ctx)
    manager.wait_for_cache_sync(ctx)
    yield manager
    cancel()


@pytest.mark.parametrize(("name", "expected"), [(None, ""), ("", ""), ("sandboxed", "kata")])
def test_create_pod_sandbox_with_runtime_class(
    tmp_path: Path, runtime_classes: runtimeclass.Manager, name: str | None, expected: str
) -> None:
    fake = testing.create_test_runtime_manager(str(tmp_path), runtime_class_manager=runtime_classes)
    sandbox_id = fake.manager.create_pod_sandbox(_CTX, _pod(runtime_class_name=name), 0)
    assert fake.runtime.sandboxes[sandbox_id].runtime_handler == expected


def test_unknown_runtime_class_is_refused(tmp_path: Path, runtime_classes: runtimeclass.Manager) -> None:
    fake = testing.create_test_runtime_manager(str(tmp_path), runtime_class_manager=runtime_classes)
    with pytest.raises(SandboxError, match=r'runtimeclass.node.k8s.io "phantom" not found'):
        fake.manager.create_pod_sandbox(_CTX, _pod(runtime_class_name="phantom"), 0)


@pytest.mark.parametrize(
    ("ip", "additional", "expected"),
    [
        ("10.0.0.1", [], ["10.0.0.1"]),
        ("10.0.0.1", ["fd00::1"], ["10.0.0.1", "fd00::1"]),
        ("", [], []),
        ("nonsense", [], []),
        ("fe80::1%eth0", [], []),
        ("10.0.0.1", ["nonsense"], []),
    ],
)
def test_determine_pod_sandbox_ips(
    fake: testing.TestRuntime, ip: str, additional: list[str], expected: list[str]
) -> None:
    network = runtimeapi.PodSandboxNetworkStatus(ip=ip, additional_ips=[runtimeapi.PodIP(ip=a) for a in additional])
    status = runtimeapi.PodSandboxStatus(network=network)
    assert fake.manager.determine_pod_sandbox_ips("ns", "pod", status) == expected


def test_port_forward_goes_to_the_newest_sandbox(fake: testing.TestRuntime) -> None:
    pod = _pod()
    fake.manager.create_pod_sandbox(_CTX, pod, 0)
    fake.manager.create_pod_sandbox(_CTX, pod, 1)
    url = fake.manager.get_port_forward(_CTX, "bar", "new", types.UID("12345678"), [80])
    assert url == "http://fake/portforward/bar_new_12345678_1"
    with pytest.raises(LookupError, match="failed to find sandboxID for pod"):
        fake.manager.get_port_forward(_CTX, "bar", "new", types.UID("other"), [80])


def _helpers() -> HelperMethods:
    return HelperMethods(
        runtime_name="fakeRuntime", image_service=critesting.FakeImageService(), seccomp_profile_root="/seccomp"
    )


def _seccomp(kind: str, file: str | None = None) -> v1.SeccompProfile:
    return v1.SeccompProfile(type=kind, localhost_profile=file)


_RUNTIME_DEFAULT = runtimeapi.SecurityProfile.RuntimeDefault
_UNCONFINED = runtimeapi.SecurityProfile.Unconfined
_LOCALHOST = runtimeapi.SecurityProfile.Localhost


@pytest.mark.parametrize(
    ("pod", "container", "default", "expected"),
    [
        (None, None, False, (_UNCONFINED, "")),
        (None, None, True, (_RUNTIME_DEFAULT, "")),
        (_seccomp("RuntimeDefault"), None, False, (_RUNTIME_DEFAULT, "")),
        (_seccomp("Unconfined"), None, True, (_UNCONFINED, "")),
        (_seccomp("Localhost", "f.json"), None, False, (_LOCALHOST, "/seccomp/f.json")),
        (_seccomp("Unconfined"), _seccomp("RuntimeDefault"), False, (_RUNTIME_DEFAULT, "")),
        (_seccomp("Localhost", "f.json"), _seccomp("Unconfined"), False, (_UNCONFINED, "")),
    ],
)
def test_seccomp_profile(
    pod: v1.SeccompProfile | None,
    container: v1.SeccompProfile | None,
    default: bool,
    expected: tuple[int, str],
) -> None:
    got = _helpers().get_seccomp_profile(
        v1.PodSecurityContext(seccomp_profile=pod), v1.SecurityContext(seccomp_profile=container), default
    )
    assert (got.profile_type, got.localhost_ref) == expected


def test_localhost_seccomp_profile_without_a_file() -> None:
    with pytest.raises(ValueError, match="localhostProfile must be set"):
        _helpers().get_seccomp_profile(None, v1.SecurityContext(seccomp_profile=_seccomp("Localhost")), True)


def test_container_security_context(fake: testing.TestRuntime) -> None:
    own = v1.SecurityContext(
        privileged=True,
        read_only_root_filesystem=True,
        allow_privilege_escalation=False,
        run_as_user=5,
        capabilities=v1.Capabilities(add=["NET_ADMIN"], drop=["ALL"]),
        proc_mount="Unmasked",
        se_linux_options=_SELINUX,
        app_armor_profile=v1.AppArmorProfile(type="Localhost", localhost_profile="mine"),
    )
    pod = _pod(security_context=v1.PodSecurityContext(run_as_user=1, run_as_group=2))
    pod.spec.containers[0].security_context = own
    got = fake.manager.determine_effective_security_context(pod, pod.spec.containers[0], 7, "")
    assert got.privileged and got.readonly_rootfs and got.no_new_privs
    assert (got.run_as_user.value, got.run_as_group.value) == (5, 2)
    assert list(got.capabilities.add_capabilities) == ["NET_ADMIN"]
    assert list(got.capabilities.drop_capabilities) == ["ALL"]
    assert not got.masked_paths and not got.readonly_paths
    assert got.selinux_options.level == "s0:c1"
    assert (got.apparmor.profile_type, got.apparmor.localhost_ref) == (_LOCALHOST, "mine")
    assert got.apparmor_profile == "localhost/mine"


def test_image_user_by_name(fake: testing.TestRuntime) -> None:
    pod = _pod()
    got = fake.manager.determine_effective_security_context(pod, pod.spec.containers[0], None, "www")
    assert got.run_as_username == "www"
    assert not got.HasField("run_as_user")


@pytest.mark.parametrize(
    ("uid", "username", "expected"),
    [(None, "", (0, "")), (1234, "", (1234, "")), (None, "www", (None, "www")), (0, "www", (0, ""))],
)
def test_get_image_user(
    fake: testing.TestRuntime, uid: int | None, username: str, expected: tuple[int | None, str]
) -> None:
    image = runtimeapi.Image(id="ref", username=username)
    if uid is not None:
        image.uid.value = uid
        image.uid.SetInParent()
    fake.images.images["ref"] = image
    assert fake.manager.get_image_user(_CTX, "ref") == expected


@pytest.mark.parametrize(
    ("non_root", "user", "uid", "username", "fails"),
    [
        (None, None, 0, "", ""),
        (False, 0, 0, "", ""),
        (True, 1, 0, "", ""),
        (True, None, 1, "", ""),
        (True, None, None, "", ""),
        (True, 0, 1, "", "runAsUser breaks non-root policy"),
        (True, None, 0, "", "image will run as root"),
        (True, None, None, "www", "image has non-numeric user (www)"),
        (True, None, None, "w" * 1_000_000, f"image has non-numeric user ({'w' * 256}),"),
        (True, None, 2**31, "", "image has an invalid user id (2147483648)"),
    ],
)
def test_verify_run_as_non_root(
    non_root: bool | None, user: int | None, uid: int | None, username: str, fails: str
) -> None:
    pod = _pod()
    container = pod.spec.containers[0]
    container.security_context = v1.SecurityContext(run_as_non_root=non_root, run_as_user=user)
    if not fails:
        verify_run_as_non_root(pod, container, uid, username)
        return
    with pytest.raises(ValueError, match="container") as caught:
        verify_run_as_non_root(pod, container, uid, username)
    assert fails in str(caught.value)
