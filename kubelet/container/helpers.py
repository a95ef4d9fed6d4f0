"""Decisions about containers that need no runtime: restarting, hashing, expanding, converting.

Go: pkg/kubelet/container/helpers.go
"""

from __future__ import annotations

import functools
import ipaddress
import json
import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.container.ref import IMPLICIT_CONTAINER_PREFIX
from kubelet.container.runtime import (
    Container,
    ContainerID,
    EnvVar,
    ImageVolumes,
    Pod,
    PodStatus,
    PortMapping,
    RunContainerOptions,
    State,
)
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import types
from pkg.util import expansion, hash, parsers

if TYPE_CHECKING:
    from kubelet.apis.stats import v1alpha1 as statsapi
    from pkg.client_go.tools import record

# What the kernel takes of one argument or variable of a program, its null byte included: 128 KiB where pages have
# 4 KiB, as nearly everywhere; and of all together, however large the stack may be.
MAX_ARGUMENT_LENGTH = 32 * mmap.PAGESIZE
MAX_ARGUMENTS_LENGTH = 6 * 1024 * 1024
# Arguments of a probe's command, with the dollars in them. Each takes a microsecond, for each probe anew. A pod has
# room for 700,000 of them, and ten such pods left others hardly any of the interpreter.
# DIVERGES (safer): an exec probe with more of them says nothing of its container.
# Go: pkg/kubelet/container/helpers.go, ExpandContainerCommandOnlyStatic: has no bound.
# Why: a few pods could keep the interpreter from all other work.
# Test: helpers_test.py:test_a_probe_has_no_command_without_end
MAX_PROBE_ARGUMENTS = 1_000
# What the kernel takes of a path.
MAX_PATH_LENGTH = 4096


class HandlerRunner(Protocol):
    """Runs lifecycle hooks."""

    def run(
        self,
        ctx: golang.Context,
        container_id: ContainerID,
        pod: v1.Pod,
        container: v1.Container,
        handler: v1.LifecycleHandler,
    ) -> str:
        """The hook's output; raises an error that has a `message` for the event if it failed."""
        ...


class RuntimeHelper(Protocol):
    """What the runtime manager asks of the kubelet."""

    def generate_run_container_options(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container: v1.Container,
        pod_ip: str,
        pod_ips: Sequence[str],
        image_volumes: ImageVolumes,
    ) -> tuple[RunContainerOptions, Callable[[], None] | None]:
        """The options, and what to call once the container has been made or has failed to be."""
        ...

    def get_pod_dns(self, ctx: golang.Context, pod: v1.Pod) -> runtimeapi.DNSConfig: ...

    def get_pod_cgroup_parent(self, pod: v1.Pod) -> str:
        """The pod's cgroup in the form that the cgroup driver wants."""
        ...

    def get_pod_dir(self, pod_uid: types.UID) -> str: ...

    def generate_pod_host_name_and_domain(self, pod: v1.Pod) -> tuple[str, str]: ...

    def get_extra_supplemental_groups_for_pod(self, pod: v1.Pod) -> list[int]:
        """Groups that the pod's persistent volumes ask for by annotation."""
        ...

    def get_or_create_user_namespace_mappings(
        self, pod: v1.Pod, runtime_handler: str
    ) -> runtimeapi.UserNamespace | None:
        """The pod's user namespace; None if the pod does not say whether it wants one."""
        ...

    def prepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None: ...

    def unprepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None: ...

    def request_pod_reinspect(self, pod_uid: types.UID) -> None:
        """Have the pod inspected in the next relist even if it seems unchanged."""
        ...

    def request_pod_relist(self, pod_uid: types.UID) -> None:
        """Have the pod relisted soon, without waiting for the next relist of all."""
        ...

    def on_pod_sandbox_ready(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """The sandbox, its network and the volumes are there."""
        ...

    def pod_cpu_and_memory_stats(self, ctx: golang.Context, pod: v1.Pod, pod_status: PodStatus) -> statsapi.PodStats:
        """What the pod uses now. Raises crierror.RemoteError, OSError, ValueError, LookupError without a sandbox."""
        ...


def should_container_be_restarted(container: v1.Container, pod: v1.Pod, pod_status: PodStatus) -> bool:
    """Whether the container is to be started, be it again or for the first time."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    status = pod_status.find_container_status_by_name(container.name)
    # None also when garbage collection has removed all that is left of it.
    if status is None:
        return True
    if status.state is State.RUNNING:
        return False
    if status.state in (State.UNKNOWN, State.CREATED):
        return True
    if features.feature_gate.enabled(features.CONTAINER_RESTART_RULES):
        return podutil.container_should_restart(container, pod.spec, status.exit_code)
    if pod.spec.restart_policy == v1.RESTART_POLICY_NEVER:
        _log_done("Already ran container, do nothing", pod, container)
        return False
    if pod.spec.restart_policy == v1.RESTART_POLICY_ON_FAILURE and status.exit_code == 0:
        _log_done("Already successfully ran container, do nothing", pod, container)
        return False
    return True


def _log_done(message: str, pod: v1.Pod, container: v1.Container) -> None:
    klog.v(4).info_s(message, pod=klog.kobj(pod), containerName=container.name)


def should_all_containers_restart(
    pod: v1.Pod, pod_status: PodStatus | None, api_pod_status: v1.PodStatus | None
) -> bool:
    """Whether the whole pod is to be restarted in place: under way, or asked for by a container's exit."""
    _, condition = podutil.get_pod_condition(api_pod_status, v1.ALL_CONTAINERS_RESTARTING)
    if condition is not None and condition.status == v1.CONDITION_TRUE:
        return True
    shown = api_pod_status or v1.PodStatus()
    api_statuses = {s.name: s for s in [*shown.init_container_statuses, *shown.container_statuses]}
    for container, _ in podutil.container_iter(pod.spec, podutil.INIT_CONTAINERS | podutil.CONTAINERS):
        for exit_code in _exit_codes(container.name, pod_status, api_statuses.get(container.name)):
            rule = podutil.find_matching_container_restart_rule(container, exit_code)
            if rule and rule.action == v1.CONTAINER_RESTART_RULE_ACTION_RESTART_ALL_CONTAINERS:
                return True
    return False


def _exit_codes(name: str, pod_status: PodStatus | None, api_status: v1.ContainerStatus | None) -> Iterable[int]:
    """The container's exit codes by the runtime and by the API status; none if the runtime shows no exit."""
    if pod_status is not None:
        status = pod_status.find_container_status_by_name(name)
        if status is None or status.state is not State.EXITED:
            return
        yield status.exit_code
    if api_status is not None and api_status.state.terminated is not None:
        yield api_status.state.terminated.exit_code


def all_containers_restart_cleaned_up(pod: v1.Pod, pod_status: PodStatus) -> bool:
    """Whether the runtime has nothing left of the pod's containers."""
    return all(
        pod_status.find_container_status_by_name(container.name) is None
        for container, _ in podutil.container_iter(pod.spec, podutil.INIT_CONTAINERS | podutil.CONTAINERS)
    )


def hash_container(container: v1.Container) -> int:
    """A hash of what cannot change while a container runs. It is kept in the runtime and must equal Go's.

    Go hashes with FNV-1a (32 bits) the text that a debug printer makes of the JSON bytes of the fields.
    """
    if len(container.image) > parsers.MAX_IMAGE_NAME_LENGTH:
        # Not kept: there is no such image, and a pod may name one after the other.
        return _hash_picked.__wrapped__(container.image, container.name)
    return _hash_picked(container.image, container.name)


@functools.lru_cache(maxsize=1024)
def _hash_picked(image: str, name: str) -> int:
    picked = json.dumps({"image": image, "name": name}, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":  # escaped by Go's JSON encoder, and inside strings only
        picked = picked.replace(char, f"\\u{ord(char):04x}")
    text = f"([]uint8)[{' '.join(map(str, picked.encode()))}]"
    return hash.fnv32a(text.encode())


def _env_vars_to_map(envs: Iterable[EnvVar | v1.EnvVar]) -> dict[str, str]:
    return {env.name: env.value for env in envs}


def expand_container_command_only_static(container_command: Sequence[str], envs: Iterable[v1.EnvVar]) -> list[str]:
    """The command with references to plain values of the spec expanded; others stay as they are.

    Raises ValueError for more than MAX_PROBE_ARGUMENTS, and for more than the kernel takes.
    """
    count = len(container_command)
    if count <= MAX_PROBE_ARGUMENTS:
        count += sum(text.count("$") for text in container_command)
    if count > MAX_PROBE_ARGUMENTS:
        raise ValueError(f"command has more than {MAX_PROBE_ARGUMENTS} arguments and references")
    return _expand_all(container_command, _env_vars_to_map(envs))


def expand_container_volume_mounts(mount: v1.VolumeMount, envs: Iterable[EnvVar]) -> str:
    """The mount's sub_path_expr expanded; raises ValueError naming the missing or empty variables."""
    variables = _env_vars_to_map(envs)
    missing = set()

    def mapping(key: str) -> str:
        value = variables.get(key, "")
        if not value:
            missing.add(key)
        return value

    expanded = expansion.expand(mount.sub_path_expr, mapping, MAX_PATH_LENGTH)
    if missing:
        raise ValueError(f"missing value for {', '.join(sorted(missing))}")
    return expanded


def expand_container_command_and_args(container: v1.Container, envs: Iterable[EnvVar]) -> tuple[list[str], list[str]]:
    """The container's command and arguments with references expanded."""
    variables = _env_vars_to_map(envs)
    return _expand_all(container.command, variables), _expand_all(container.args, variables)


def _expand_all(texts: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Raises ValueError for more than the kernel takes."""
    mapping = expansion.mapping_func_for(variables)
    expanded: list[str] = []
    size = 0
    for index, text in enumerate(texts):
        try:
            expanded.append(expansion.expand(text, mapping, MAX_ARGUMENT_LENGTH))
        except expansion.TooLongError as err:
            raise ValueError(f"argument {index} of the command is too long for the kernel: {err}") from err
        size += len(expanded[-1])
        if size > MAX_ARGUMENTS_LENGTH:
            raise ValueError(
                f"argument list of the command is too long for the kernel: {MAX_ARGUMENTS_LENGTH} bytes at most"
            )
    return expanded


def filter_event_recorder(recorder: record.EventRecorder) -> record.EventRecorder:
    """A recorder that drops events about what is no container of a spec, as the sandbox."""
    return _InnerEventRecorder(recorder)


class _InnerEventRecorder:
    def __init__(self, recorder: record.EventRecorder) -> None:
        self._recorder = recorder

    def event(self, object: Any, eventtype: str, reason: str, message: str) -> None:
        if _should_record_event(object):
            self._recorder.event(object, eventtype, reason, message)

    def eventf(self, object: Any, eventtype: str, reason: str, message_fmt: str, *args: Any) -> None:
        if _should_record_event(object):
            self._recorder.eventf(object, eventtype, reason, message_fmt, *args)

    def annotated_eventf(
        self,
        object: Any,
        annotations: Mapping[str, str],
        eventtype: str,
        reason: str,
        message_fmt: str,
        *args: Any,
    ) -> None:
        if _should_record_event(object):
            self._recorder.annotated_eventf(object, annotations, eventtype, reason, message_fmt, *args)


def _should_record_event(object: Any) -> bool:
    return isinstance(object, v1.ObjectReference) and not object.field_path.startswith(IMPLICIT_CONTAINER_PREFIX)


def is_host_network_pod(pod: v1.Pod) -> bool:
    return pod.spec.host_network


def convert_pod_status_to_running_pod(runtime_name: str, pod_status: PodStatus) -> Pod:
    """The pod with its running containers and all its sandboxes."""
    containers = [
        Container(
            id=status.id,
            name=status.name,
            image=status.image,
            image_id=status.image_id,
            image_ref=status.image_ref,
            image_runtime_handler=status.image_runtime_handler,
            hash=status.hash,
            state=status.state,
        )
        for status in pod_status.container_statuses
        if status.state is State.RUNNING
    ]
    sandboxes = [
        Container(id=ContainerID(runtime_name, sandbox.id), state=sandbox_to_container_state(sandbox.state))
        for sandbox in pod_status.sandbox_statuses
    ]
    return Pod(
        id=pod_status.id,
        name=pod_status.name,
        namespace=pod_status.namespace,
        containers=containers,
        sandboxes=sandboxes,
    )


def sandbox_to_container_state(state: runtimeapi.PodSandboxState.ValueType) -> State:
    """A sandbox's state as a container's, since the PLEG treats sandboxes as containers."""
    if state == runtimeapi.SANDBOX_READY:
        return State.RUNNING
    if state == runtimeapi.SANDBOX_NOTREADY:
        return State.EXITED
    return State.UNKNOWN


def get_container_spec(pod: v1.Pod, container_name: str) -> v1.Container | None:
    """The container of that name, of whatever type."""
    containers = podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS)
    return next((container for container, _ in containers if container.name == container_name), None)


def has_privileged_container(pod: v1.Pod) -> bool:
    return any(
        container.security_context is not None and bool(container.security_context.privileged)
        for container, _ in podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS)
    )


def make_port_mappings(container: v1.Container) -> list[PortMapping]:
    """The container's ports. Of two with one name, or else the same numbers and address, the first counts."""
    ports: dict[str, PortMapping] = {}
    for port in container.ports:
        name = port.name or (
            f"{_family(port.host_ip)}-{port.protocol}-{port.host_ip}:{port.container_port}:{port.host_port}"
        )
        if name in ports:
            klog.info_s("Port name conflicted, it is defined more than once", portName=name)
            continue
        ports[name] = PortMapping(port.protocol, port.container_port, port.host_port, port.host_ip)
    return list(ports.values())


def _family(host_ip: str) -> str:
    if not host_ip:
        return "any"
    try:
        return f"v{ipaddress.ip_address(host_ip).version}"
    except ValueError:
        return "v4"


def has_any_regular_container_started(spec: v1.PodSpec, statuses: Iterable[v1.ContainerStatus]) -> bool:
    """Whether a regular container has run. Not reliable across sandboxes: prefer the function below."""
    names = {container.name for container in spec.containers}
    return any(
        status.state.running is not None or status.state.terminated is not None
        for status in statuses
        if status.name in names
    )


def has_any_active_regular_container_started(spec: v1.PodSpec, pod_status: PodStatus | None) -> bool:
    """Whether a regular container was started in the present sandbox; then all init containers are done."""
    if pod_status is None:
        return False
    names = {container.name for container in spec.containers}
    return any(status.name in names for status in pod_status.active_container_statuses)
