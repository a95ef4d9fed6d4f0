"""Test decisions about containers.

Go: pkg/kubelet/container/helpers_test.go, container_hash_test.go
"""

from __future__ import annotations

import datetime
import weakref
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from pkg import features
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.component_base.featuregate import testing as featuregatetesting
from pkg.util import parsers

BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
RUNNING = kubecontainer.CONTAINER_STATE_RUNNING
EXITED = kubecontainer.CONTAINER_STATE_EXITED


@pytest.mark.parametrize(
    ("name", "image", "expected"),
    [
        # This value is from Go's own test.
        ("test_container", "foo/image:v1", 0x8E45CBD0),
        # The Go kubelet 1.36.2 wrote these values into its containers' annotations.
        ("c", BUSYBOX, 0xA6DD0DED),
        ("a", BUSYBOX, 0x5F3F5E83),
        ("b", BUSYBOX, 0x7EC1C1A2),
        ("first", BUSYBOX, 0x86D12F2F),
        ("sidecar", BUSYBOX, 0xD0D51FE3),
        ("second", BUSYBOX, 0x4ACCE4EE),
        ("main", BUSYBOX, 0xA785D335),
        ("other", BUSYBOX, 0x1644984D),
    ],
)
def test_hash_container(name: str, image: str, expected: int) -> None:
    container = v1.Container(name=name, image=image, command=["does", "not", "count"])
    assert kubecontainer.hash_container(container) == expected


def test_no_long_name_of_an_image_is_kept_with_its_hash() -> None:
    """The cache of hashes does not keep long image names, because pods may name many of a megabyte each."""

    class Name(str):
        """Represent a name whose end a weak reference can observe."""

    image = Name("i" * (parsers.MAX_IMAGE_NAME_LENGTH + 1))
    seen = weakref.ref(image)
    kubecontainer.hash_container(v1.Container(name="c", image=image))
    del image
    assert seen() is None


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ([], [], ([], [])),
        (["foo", "$(A)", "$(B)"], [], (["foo", "zoo", "boo"], [])),
        ([], ["zap", "$(A)", "$(B)"], ([], ["zap", "zoo", "boo"])),
        (["$(B)--$(A)", "foo"], ["$$(A)", "$(C)"], (["boo--zoo", "foo"], ["$(A)", "$(C)"])),
    ],
)
def test_expand_command_and_args(command: list[str], args: list[str], expected: tuple[list[str], list[str]]) -> None:
    container = v1.Container(command=command, args=args)
    envs = [kubecontainer.EnvVar("A", "zoo"), kubecontainer.EnvVar("B", "boo")]
    assert kubecontainer.expand_container_command_and_args(container, envs) == expected


def test_expand_container_command_only_static() -> None:
    envs = [v1.EnvVar(name="A", value="x")]
    command = ["$(A)", "$(A)-$(MISSING)"]
    assert kubecontainer.expand_container_command_only_static(command, envs) == ["x", "x-$(MISSING)"]
    assert kubecontainer.expand_container_command_only_static([], envs) == []


@pytest.mark.parametrize("command", [[""] * 1001, ["a", "$(A)" * 1000], ["$$" * 501]])
def test_a_probe_has_no_command_without_end(command: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^command has more than 1000 arguments and references"):
        kubecontainer.expand_container_command_only_static(command, [])
    container = v1.Container(command=command)
    assert len(kubecontainer.expand_container_command_and_args(container, [])[0]) == len(command)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("foo", "foo"),
        ("", ""),
        ("foo/$(POD_NAME)", "foo/bar"),
        ("$(POD_NAME)/bar", "bar/bar"),
        ("/foo/$(MISSING)", None),
        ("foo/$(POD_NAME)/$(EMPTY)", None),
        ("$()", None),
        ("$(POD_NAME$(EMPTY))", None),
    ],
)
def test_expand_volume_mounts_with_subpath(expression: str, expected: str | None) -> None:
    mount = v1.VolumeMount(sub_path_expr=expression)
    envs = [kubecontainer.EnvVar("POD_NAME", "bar"), kubecontainer.EnvVar("EMPTY", "")]
    if expected is None:
        with pytest.raises(ValueError, match="missing value for "):
            kubecontainer.expand_container_volume_mounts(mount, envs)
    else:
        assert kubecontainer.expand_container_volume_mounts(mount, envs) == expected


def pod_with(**kwargs: Any) -> v1.Pod:
    names = ("running", "succeeded", "failed", "created", "unknown", "fresh")
    containers = [v1.Container(name=name) for name in names]
    return v1.Pod(spec=v1.PodSpec(containers=containers, **kwargs))


def runtime_status() -> kubecontainer.PodStatus:
    return kubecontainer.PodStatus(
        container_statuses=[
            kubecontainer.Status(name="running", state=RUNNING),
            kubecontainer.Status(name="succeeded", state=EXITED),
            kubecontainer.Status(name="failed", state=EXITED, exit_code=1),
            kubecontainer.Status(name="created", state=kubecontainer.CONTAINER_STATE_CREATED),
            kubecontainer.Status(name="unknown", state=kubecontainer.CONTAINER_STATE_UNKNOWN),
            # Earlier runs do not count.
            kubecontainer.Status(name="running", state=EXITED, exit_code=2),
        ]
    )


@pytest.mark.parametrize("rules", [True, False], ids=["with restart rules", "without"])
@pytest.mark.parametrize(
    ("policy", "restarted"),
    [
        ("Never", {"fresh", "created", "unknown"}),
        ("OnFailure", {"fresh", "created", "unknown", "failed"}),
        ("Always", {"fresh", "created", "unknown", "failed", "succeeded"}),
    ],
)
def test_should_container_be_restarted(policy: str, restarted: set[str], rules: bool) -> None:
    pod = pod_with(restart_policy=policy)
    gate = features.CONTAINER_RESTART_RULES
    with featuregatetesting.set_feature_gate_during_test(features.feature_gate, gate, rules):
        found = {
            c.name for c in pod.spec.containers if kubecontainer.should_container_be_restarted(c, pod, runtime_status())
        }
    assert found == restarted


def test_deleted_pods_are_not_restarted() -> None:
    pod = pod_with(restart_policy="Always")
    pod.metadata.deletion_timestamp = datetime.datetime.now(datetime.UTC)
    status = runtime_status()
    assert not any(kubecontainer.should_container_be_restarted(c, pod, status) for c in pod.spec.containers)


def restart_all_on(code: int) -> v1.ContainerRestartRule:
    codes = v1.ContainerRestartRuleOnExitCodes(operator="In", values=[code])
    return v1.ContainerRestartRule(action="RestartAllContainers", exit_codes=codes)


@pytest.mark.parametrize(
    ("exit_code", "api_exit_code", "condition", "expected"),
    [
        (None, None, None, False),
        (42, None, None, True),
        (1, None, None, False),
        (1, 42, None, True),
        (None, 42, None, False),  # The runtime shows no exit.
        (None, None, "True", True),
        (None, None, "False", False),
    ],
)
def test_should_all_containers_restart(
    exit_code: int | None, api_exit_code: int | None, condition: str | None, expected: bool
) -> None:
    container = v1.Container(name="c", restart_policy="Never", restart_policy_rules=[restart_all_on(42)])
    pod = v1.Pod(spec=v1.PodSpec(containers=[container]))
    status = kubecontainer.PodStatus()
    if exit_code is not None:
        status.container_statuses = [kubecontainer.Status(name="c", state=EXITED, exit_code=exit_code)]
    api_status = v1.PodStatus()
    if api_exit_code is not None:
        state = v1.ContainerState(terminated=v1.ContainerStateTerminated(exit_code=api_exit_code))
        api_status.container_statuses = [v1.ContainerStatus(name="c", state=state)]
    if condition is not None:
        api_status.conditions = [v1.PodCondition(type="AllContainersRestarting", status=condition)]
    assert kubecontainer.should_all_containers_restart(pod, status, api_status) is expected
    assert kubecontainer.all_containers_restart_cleaned_up(pod, status) is (exit_code is None)


def test_has_privileged_container() -> None:
    def pod(**kwargs: Any) -> v1.Pod:
        return v1.Pod(spec=v1.PodSpec(**kwargs))

    privileged = v1.SecurityContext(privileged=True)
    assert not kubecontainer.has_privileged_container(pod(containers=[v1.Container()]))
    plain = v1.Container(security_context=v1.SecurityContext(privileged=False))
    assert not kubecontainer.has_privileged_container(pod(containers=[plain]))
    assert kubecontainer.has_privileged_container(pod(init_containers=[v1.Container(security_context=privileged)]))
    ephemeral = v1.EphemeralContainer(security_context=privileged)
    assert kubecontainer.has_privileged_container(pod(containers=[plain], ephemeral_containers=[ephemeral]))


def test_get_container_spec() -> None:
    spec = v1.PodSpec(
        containers=[v1.Container(name="plain")],
        init_containers=[v1.Container(name="init")],
        ephemeral_containers=[v1.EphemeralContainer(name="debug")],
    )
    pod = v1.Pod(spec=spec)
    for name in ("plain", "init", "debug"):
        found = kubecontainer.get_container_spec(pod, name)
        assert found is not None
        assert found.name == name
    assert kubecontainer.get_container_spec(pod, "none") is None


def port(**kwargs: Any) -> v1.ContainerPort:
    return v1.ContainerPort(protocol="TCP", **kwargs)


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (
            [port(container_port=80, host_port=8080, host_ip="127.0.0.1"), port(container_port=443)],
            [("TCP", 80, 8080, "127.0.0.1"), ("TCP", 443, 0, "")],
        ),
        (
            [port(name="http", container_port=80), port(name="http", container_port=81)],
            [("TCP", 80, 0, "")],
        ),
        (
            [
                port(container_port=80, host_port=8080, host_ip="10.0.0.1"),
                port(container_port=80, host_port=8080, host_ip="10.0.0.1"),
                port(container_port=80, host_port=8080, host_ip="::1"),
            ],
            [("TCP", 80, 8080, "10.0.0.1"), ("TCP", 80, 8080, "::1")],
        ),
    ],
)
def test_make_port_mappings(ports: list[v1.ContainerPort], expected: list[tuple[str, int, int, str]]) -> None:
    mappings = kubecontainer.make_port_mappings(v1.Container(ports=ports))
    assert [(m.protocol, m.container_port, m.host_port, m.host_ip) for m in mappings] == expected


class Recorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(self, object: Any, eventtype: str, reason: str, message: str) -> None:
        self.events.append((reason, message))

    def eventf(self, object: Any, eventtype: str, reason: str, message_fmt: str, *args: Any) -> None:
        self.events.append((reason, message_fmt % args))

    def annotated_eventf(
        self, object: Any, annotations: Any, eventtype: str, reason: str, message_fmt: str, *args: Any
    ) -> None:
        self.events.append((reason, message_fmt % args))


def test_filter_event_recorder() -> None:
    recorder = Recorder()
    filtered = kubecontainer.filter_event_recorder(recorder)
    prefix = kubecontainer.IMPLICIT_CONTAINER_PREFIX
    for obj in (
        v1.Pod(),
        None,
        v1.ObjectReference(field_path=prefix + "x"),
        v1.ObjectReference(field_path="spec.containers{c}"),
    ):
        filtered.event(obj, "Normal", "A", "one")
        filtered.eventf(obj, "Normal", "B", "%s", "two")
        filtered.annotated_eventf(obj, {}, "Normal", "C", "%d", 3)
    assert recorder.events == [("A", "one"), ("B", "two"), ("C", "3")]


def test_convert_pod_status_to_running_pod() -> None:
    ids = [kubecontainer.ContainerID("containerd", id) for id in ("1", "2")]
    status = kubecontainer.PodStatus(
        id=types.UID("uid"),
        name="n",
        namespace="ns",
        container_statuses=[
            kubecontainer.Status(id=ids[0], name="a", state=RUNNING, hash=7, image="i"),
            kubecontainer.Status(id=ids[1], name="b", state=EXITED),
        ],
        sandbox_statuses=[
            runtimeapi.PodSandboxStatus(id="s1", state=runtimeapi.SANDBOX_READY),
            runtimeapi.PodSandboxStatus(id="s2", state=runtimeapi.SANDBOX_NOTREADY),
        ],
    )
    pod = kubecontainer.convert_pod_status_to_running_pod("containerd", status)
    assert (pod.id, pod.name, pod.namespace) == ("uid", "n", "ns")
    assert pod.containers == [kubecontainer.Container(id=ids[0], name="a", state=RUNNING, hash=7, image="i")]
    assert [(str(s.id), s.state) for s in pod.sandboxes] == [
        ("containerd://s1", RUNNING),
        ("containerd://s2", EXITED),
    ]


def test_has_any_regular_container_started() -> None:
    spec = v1.PodSpec(containers=[v1.Container(name="c")], init_containers=[v1.Container(name="i")])
    ran = v1.ContainerState(terminated=v1.ContainerStateTerminated())
    has = kubecontainer.has_any_regular_container_started
    assert not has(spec, [])
    assert not has(spec, [v1.ContainerStatus(name="i", state=ran)])
    assert not has(spec, [v1.ContainerStatus(name="c", state=v1.ContainerState())])
    assert has(spec, [v1.ContainerStatus(name="c", state=ran)])

    active = kubecontainer.has_any_active_regular_container_started
    assert not active(spec, None)
    init = kubecontainer.Status(name="i", state=RUNNING)
    assert not active(spec, kubecontainer.PodStatus(active_container_statuses=[init]))
    old = kubecontainer.Status(name="c", state=EXITED)
    assert not active(spec, kubecontainer.PodStatus(container_statuses=[old]))
    assert active(spec, kubecontainer.PodStatus(active_container_statuses=[old]))


@pytest.mark.parametrize(
    ("spec", "name", "expected"),
    [
        (v1.PodSpec(containers=[v1.Container(name="c")]), "c", "spec.containers{c}"),
        (v1.PodSpec(containers=[v1.Container()]), "", "spec.containers[0]"),
        (v1.PodSpec(init_containers=[v1.Container(name="i")]), "i", "spec.initContainers{i}"),
        (
            v1.PodSpec(ephemeral_containers=[v1.EphemeralContainer(name="e")]),
            "e",
            "spec.ephemeralContainers{e}",
        ),
        (v1.PodSpec(), "POD", "implicitly required container POD"),
    ],
)
def test_generate_container_ref(spec: v1.PodSpec, name: str, expected: str) -> None:
    metadata = metav1.ObjectMeta(name="p", namespace="ns", uid=types.UID("u"), resource_version="7")
    ref = kubecontainer.generate_container_ref(v1.Pod(metadata=metadata, spec=spec), v1.Container(name=name))
    assert ref == v1.ObjectReference(
        kind="Pod",
        api_version="v1",
        name="p",
        namespace="ns",
        uid=types.UID("u"),
        resource_version="7",
        field_path=expected,
    )
