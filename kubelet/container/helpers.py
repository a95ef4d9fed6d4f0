"""Decide about containers without asking the runtime: restart, hash, expand and convert them.

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

# The kernel limits the length of one argument or variable of a program, including its null byte, to 128 KiB if pages
# have 4 KiB, as on nearly all machines. It also limits the length of all of them together, however large the stack may
# be.
MAX_ARGUMENT_LENGTH = 32 * mmap.PAGESIZE
MAX_ARGUMENTS_LENGTH = 6 * 1024 * 1024
# `MAX_PROBE_ARGUMENTS` limits the arguments of a probe's command, plus the dollar signs in them. Each argument or sign
# takes a microsecond at every probe. A pod can have 700,000 of them, and ten such pods used up nearly all of the
# interpreter's time.
# DIVERGES (safer): an exec probe with more arguments has no result.
# Go: pkg/kubelet/container/helpers.go, ExpandContainerCommandOnlyStatic: the Go kubelet has no limit.
# Why: a few pods could keep the interpreter from all other work.
# Test: helpers_test.py:test_a_probe_has_no_command_without_end
MAX_PROBE_ARGUMENTS = 1_000
# The kernel accepts paths of up to this length.
MAX_PATH_LENGTH = 4096


class HandlerRunner(Protocol):
    """Define how to run lifecycle hooks."""

    def run(
        self,
        ctx: golang.Context,
        container_id: ContainerID,
        pod: v1.Pod,
        container: v1.Container,
        handler: v1.LifecycleHandler,
    ) -> str:
        """Run a hook and return its output. If the hook fails, raise an error that has a `message` for the event."""
        ...


class RuntimeHelper(Protocol):
    """Define what the runtime manager needs from the kubelet."""

    def generate_run_container_options(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container: v1.Container,
        pod_ip: str,
        pod_ips: Sequence[str],
        image_volumes: ImageVolumes,
    ) -> tuple[RunContainerOptions, Callable[[], None] | None]:
        """Return the options, and a function to call once the container's creation has succeeded or failed."""
        ...

    def get_pod_dns(self, ctx: golang.Context, pod: v1.Pod) -> runtimeapi.DNSConfig: ...

    def get_pod_cgroup_parent(self, pod: v1.Pod) -> str:
        """Return the pod's cgroup in the form that the cgroup driver requires."""
        ...

    def get_pod_dir(self, pod_uid: types.UID) -> str: ...

    def generate_pod_host_name_and_domain(self, pod: v1.Pod) -> tuple[str, str]: ...

    def get_extra_supplemental_groups_for_pod(self, pod: v1.Pod) -> list[int]:
        """Return the groups that the pod's persistent volumes request with an annotation."""
        ...

    def get_or_create_user_namespace_mappings(
        self, pod: v1.Pod, runtime_handler: str
    ) -> runtimeapi.UserNamespace | None:
        """Return the pod's user namespace, or None if the pod does not specify hostUsers."""
        ...

    def prepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None: ...

    def unprepare_dynamic_resources(self, ctx: golang.Context, pod: v1.Pod) -> None: ...

    def request_pod_reinspect(self, pod_uid: types.UID) -> None:
        """Inspect the pod during the next relist even if it seems unchanged."""
        ...

    def request_pod_relist(self, pod_uid: types.UID) -> None:
        """Relist this pod soon, without waiting for the next relist of all pods."""
        ...

    def on_pod_sandbox_ready(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Record that the sandbox, its network and the volumes are ready."""
        ...

    def pod_cpu_and_memory_stats(self, ctx: golang.Context, pod: v1.Pod, pod_status: PodStatus) -> statsapi.PodStats:
        """Return the pod's current usage.

        Raise crierror.RemoteError, OSError, ValueError, or LookupError if the pod has no sandbox.
        """
        ...


def should_container_be_restarted(container: v1.Container, pod: v1.Pod, pod_status: PodStatus) -> bool:
    """Report whether the container must start, for the first time or again."""
    if pod.metadata.deletion_timestamp is not None:
        return False
    status = pod_status.find_container_status_by_name(container.name)
    # There is also no status if garbage collection has removed all runs of the container.
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
    """Report whether the whole pod must restart in place.

    The pod must restart if such a restart is in progress, or if the exit of a container has triggered it.
    """
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
    """Yield the container's exit codes according to the runtime and the API status.

    If the runtime shows that the container has not exited, yield nothing.
    """
    if pod_status is not None:
        status = pod_status.find_container_status_by_name(name)
        if status is None or status.state is not State.EXITED:
            return
        yield status.exit_code
    if api_status is not None and api_status.state.terminated is not None:
        yield api_status.state.terminated.exit_code


def all_containers_restart_cleaned_up(pod: v1.Pod, pod_status: PodStatus) -> bool:
    """Report whether the runtime has removed all of the pod's containers."""
    return all(
        pod_status.find_container_status_by_name(container.name) is None
        for container, _ in podutil.container_iter(pod.spec, podutil.INIT_CONTAINERS | podutil.CONTAINERS)
    )


def hash_container(container: v1.Container) -> int:
    """Return a hash of the fields that cannot change while a container runs.

    The runtime stores the hash, so it must equal Go's.

    Go computes the 32-bit FNV-1a hash of the text that a debug printer makes of the JSON bytes of the fields.
    """
    if len(container.image) > parsers.MAX_IMAGE_NAME_LENGTH:
        # The hash is not cached because no such image can exist, and a pod may name one such image after another.
        return _hash_picked.__wrapped__(container.image, container.name)
    return _hash_picked(container.image, container.name)


@functools.lru_cache(maxsize=1024)
def _hash_picked(image: str, name: str) -> int:
    picked = json.dumps({"image": image, "name": name}, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":  # Go's JSON encoder escapes these characters, which occur only inside strings.
        picked = picked.replace(char, f"\\u{ord(char):04x}")
    text = f"([]uint8)[{' '.join(map(str, picked.encode()))}]"
    return hash.fnv32a(text.encode())


def _env_vars_to_map(envs: Iterable[EnvVar | v1.EnvVar]) -> dict[str, str]:
    return {env.name: env.value for env in envs}


def expand_container_command_only_static(container_command: Sequence[str], envs: Iterable[v1.EnvVar]) -> list[str]:
    """Expand the references to plain values of the spec in the command; other references stay as they are.

    Raise ValueError if the command has more than MAX_PROBE_ARGUMENTS, or exceeds a limit of the kernel.
    """
    count = len(container_command)
    if count <= MAX_PROBE_ARGUMENTS:
        count += sum(text.count("$") for text in container_command)
    if count > MAX_PROBE_ARGUMENTS:
        raise ValueError(f"command has more than {MAX_PROBE_ARGUMENTS} arguments and references")
    return _expand_all(container_command, _env_vars_to_map(envs))


def expand_container_volume_mounts(mount: v1.VolumeMount, envs: Iterable[EnvVar]) -> str:
    """Expand the mount's sub_path_expr. Raise ValueError with the names of the missing or empty variables."""
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
    """Expand the references in the container's command and arguments; return both."""
    variables = _env_vars_to_map(envs)
    return _expand_all(container.command, variables), _expand_all(container.args, variables)


def _expand_all(texts: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Expand all texts. Raise ValueError if the result exceeds a limit of the kernel."""
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
    """Return a recorder that drops events about objects that are not containers of a spec, such as the sandbox."""
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
    """Return the pod with its running containers and all its sandboxes."""
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
    """Convert a sandbox's state to a container's, because the PLEG treats sandboxes as containers."""
    if state == runtimeapi.SANDBOX_READY:
        return State.RUNNING
    if state == runtimeapi.SANDBOX_NOTREADY:
        return State.EXITED
    return State.UNKNOWN


def get_container_spec(pod: v1.Pod, container_name: str) -> v1.Container | None:
    """Return the container of any type with this name, or None."""
    containers = podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS)
    return next((container for container, _ in containers if container.name == container_name), None)


def has_privileged_container(pod: v1.Pod) -> bool:
    return any(
        container.security_context is not None and bool(container.security_context.privileged)
        for container, _ in podutil.container_iter(pod.spec, podutil.ALL_CONTAINERS)
    )


def make_port_mappings(container: v1.Container) -> list[PortMapping]:
    """Return the container's port mappings.

    Of two ports with the same name, or without a name and with the same numbers and address, only the first counts.
    """
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
    """Report whether a regular container has run.

    The container may belong to an earlier sandbox, so has_any_active_regular_container_started is more reliable.
    """
    names = {container.name for container in spec.containers}
    return any(
        status.state.running is not None or status.state.terminated is not None
        for status in statuses
        if status.name in names
    )


def has_any_active_regular_container_started(spec: v1.PodSpec, pod_status: PodStatus | None) -> bool:
    """Report whether a regular container started in the current sandbox.

    A start proves that all init containers have finished.
    """
    if pod_status is None:
        return False
    names = {container.name for container in spec.containers}
    return any(status.name in names for status in pod_status.active_container_statuses)
