"""Validate containers: images, ports, mounts, probes, hooks and restart policies.

Go: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from pkg.api.core import v1
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.apis.core.validation.env import validate_env, validate_env_from
from pkg.apis.core.validation.names import (
    Errors,
    invalid_each,
    validate_dns1123_label,
    validate_local_descending_path,
    validate_nonnegative_field,
    validate_path_no_backsteps,
)
from pkg.apis.core.validation.options import PodValidationOptions
from pkg.apis.core.validation.resources import validate_container_resource_requirements
from pkg.apis.core.validation.security import validate_security_context
from pkg.apis.core.validation.volumes import Volumes, validate_pull_policy

_PORT_PROTOCOLS = [v1.PROTOCOL_SCTP, v1.PROTOCOL_TCP, v1.PROTOCOL_UDP]
_HTTP_SCHEMES = [v1.URI_SCHEME_HTTP, v1.URI_SCHEME_HTTPS]
_MOUNT_PROPAGATIONS = [
    v1.MOUNT_PROPAGATION_BIDIRECTIONAL, v1.MOUNT_PROPAGATION_HOST_TO_CONTAINER, v1.MOUNT_PROPAGATION_NONE,
]  # fmt: skip
_RECURSIVE_READ_ONLY_MODES = [
    v1.RECURSIVE_READ_ONLY_DISABLED, v1.RECURSIVE_READ_ONLY_ENABLED, v1.RECURSIVE_READ_ONLY_IF_POSSIBLE,
]  # fmt: skip
_TERMINATION_MESSAGE_POLICIES = [
    v1.TERMINATION_MESSAGE_READ_FILE,
    v1.TERMINATION_MESSAGE_FALLBACK_TO_LOGS_ON_ERROR,
]
_RESIZE_RESOURCES = ["cpu", "memory"]
_RESIZE_POLICIES = [v1.NOT_REQUIRED, v1.RESTART_CONTAINER]
_RESTART_POLICIES = ["Always", "Never", "OnFailure"]
_RESTART_RULE_OPERATORS = ["In", "NotIn"]
_STOP_SIGNALS_WINDOWS = ["SIGKILL", "SIGTERM"]
_STOP_SIGNALS_LINUX = sorted(
    [
        "SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL",
        "SIGINT", "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT",
        "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU",
        "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ", "SIGRTMIN", "SIGRTMAX",
        *(f"SIGRTMIN+{i}" for i in range(1, 16)),
        *(f"SIGRTMAX-{i}" for i in range(1, 15)),
    ]
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class PodContext:
    """Hold what the validation of a container needs to know about its pod."""

    volumes: Volumes
    claim_names: Set[str]
    grace_period: int | None
    restart_policy: str
    os: str
    host_users: bool
    opts: PodValidationOptions


def validate_containers(containers: Sequence[v1.Container], pod: PodContext, fld_path: field.Path) -> Errors:
    if not containers:
        return [field.required(fld_path, "")]
    errs: Errors = []
    names: set[str] = set()
    for i, container in enumerate(containers):
        path = fld_path.index(i)
        errs += _validate_container_common(container, pod, path)
        if container.name in names:
            errs.append(field.duplicate(path.child("name"), container.name))
        names.add(container.name)
        errs += _validate_lifecycle_and_probes(container, pod, path)
        if pod.opts.allow_container_restart_policy_rules:
            errs += _validate_container_restart_policy(container, path, pod.opts)
        elif container.restart_policy is not None:
            errs.append(field.forbidden(path.child("restartPolicy"), "may not be set for non-init containers"))
    return errs + _check_host_port_conflicts(containers, fld_path)


def validate_init_containers(
    containers: Sequence[v1.Container],
    regular_containers: Sequence[v1.Container],
    pod: PodContext,
    fld_path: field.Path,
) -> Errors:
    errs: Errors = []
    names = {c.name for c in regular_containers}
    for i, container in enumerate(containers):
        path = fld_path.index(i)
        errs += _validate_container_common(container, pod, path)
        errs += _validate_init_container_restart_policy(container, path, pod.opts)
        if container.name in names:
            errs.append(field.duplicate(path.child("name"), container.name))
        elif container.name:
            names.add(container.name)
        # Init containers run one after the other, so only the ports of the same container can conflict.
        errs += _check_host_port_conflicts([container], fld_path)
        if container.restart_policy == v1.CONTAINER_RESTART_POLICY_ALWAYS:
            errs += _validate_lifecycle_and_probes(container, pod, path)
        else:
            errs += _validate_not_a_sidecar(container, path)
    return errs


def _validate_not_a_sidecar(container: v1.Container, fld_path: field.Path) -> Errors:
    """Require that an init container that runs to completion has no hooks and no probes."""
    detail = "may not be set for init containers without restartPolicy=Always"
    errs: Errors = [
        field.forbidden(fld_path.child(name), detail)
        for name, value in (
            ("lifecycle", container.lifecycle),
            ("livenessProbe", container.liveness_probe),
            ("readinessProbe", container.readiness_probe),
            ("startupProbe", container.startup_probe),
        )
        if value is not None
    ]
    for i, policy in enumerate(container.resize_policy):
        if policy.restart_policy == v1.RESTART_CONTAINER:
            detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            path = fld_path.child("resizePolicy").index(i).child("restartPolicy")
            errs.append(field.invalid(path, policy.restart_policy, detail))
    return errs


def _validate_container_common(container: v1.Container, pod: PodContext, fld_path: field.Path) -> Errors:
    errs: Errors = []
    if not container.name:
        errs.append(field.required(fld_path.child("name"), ""))
    else:
        errs += validate_dns1123_label(container.name, fld_path.child("name"))
    # Go checks for white space separately, and only in pods, because templates may still contain it.
    if not container.image:
        errs.append(field.required(fld_path.child("image"), ""))
    elif container.image != container.image.strip():
        detail = "must not have leading or trailing whitespace"
        errs.append(field.invalid(fld_path.child("image"), container.image, detail))
    policy_path = fld_path.child("terminationMessagePolicy")
    if not container.termination_message_policy:
        errs.append(field.required(policy_path, ""))
    elif container.termination_message_policy not in _TERMINATION_MESSAGE_POLICIES:
        policy = container.termination_message_policy
        errs.append(field.not_supported(policy_path, policy, _TERMINATION_MESSAGE_POLICIES))
    errs += _validate_container_ports(container.ports, fld_path.child("ports"))
    errs += validate_env(container.env, fld_path.child("env"), pod.opts)
    errs += validate_env_from(container.env_from, fld_path.child("envFrom"))
    errs += _validate_volume_mounts(container, pod.volumes, fld_path.child("volumeMounts"))
    errs += _validate_volume_devices(container, pod.volumes, fld_path.child("volumeDevices"))
    errs += validate_pull_policy(container.image_pull_policy, fld_path.child("imagePullPolicy"))
    resources_path = fld_path.child("resources")
    errs += validate_container_resource_requirements(container.resources, pod.claim_names, resources_path)
    errs += _validate_resize_policy(container.resize_policy, pod.restart_policy, fld_path.child("resizePolicy"))
    return errs + validate_security_context(
        container.security_context, fld_path.child("securityContext"), pod.host_users
    )


def _validate_container_ports(ports: Sequence[v1.ContainerPort], fld_path: field.Path) -> Errors:
    errs: Errors = []
    names: set[str] = set()
    for i, port in enumerate(ports):
        path = fld_path.index(i)
        if port.name:
            messages = validation.is_valid_port_name(port.name)
            errs += invalid_each(path.child("name"), port.name, messages)
            if not messages and port.name in names:
                errs.append(field.duplicate(path.child("name"), port.name))
            names.add(port.name)
        if port.container_port == 0:
            errs.append(field.required(path.child("containerPort"), ""))
        else:
            messages = validation.is_valid_port_num(port.container_port)
            errs += invalid_each(path.child("containerPort"), port.container_port, messages)
        if port.host_port:
            messages = validation.is_valid_port_num(port.host_port)
            errs += invalid_each(path.child("hostPort"), port.host_port, messages)
        if not port.protocol:
            errs.append(field.required(path.child("protocol"), ""))
        elif port.protocol not in _PORT_PROTOCOLS:
            errs.append(field.not_supported(path.child("protocol"), port.protocol, _PORT_PROTOCOLS))
    return errs


def _check_host_port_conflicts(containers: Sequence[v1.Container], fld_path: field.Path) -> Errors:
    errs: Errors = []
    taken: set[str] = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.ports):
            if port.host_port == 0:
                continue
            key = f"{port.protocol}/{port.host_ip}/{port.host_port}"
            if key in taken:
                errs.append(field.duplicate(fld_path.index(i).child("ports").index(j).child("hostPort"), key))
            taken.add(key)
    return errs


def _validate_volume_mounts(container: v1.Container, volumes: Volumes, fld_path: field.Path) -> Errors:
    errs: Errors = []
    devices = {d.name: d.device_path for d in container.volume_devices}
    device_paths = set(devices.values())
    mount_points: set[str] = set()
    for i, mount in enumerate(container.volume_mounts):
        path = fld_path.index(i)
        if not mount.name:
            errs.append(field.required(path.child("name"), ""))
        if mount.name not in volumes:
            errs.append(field.not_found(path.child("name"), mount.name))
        if not mount.mount_path:
            errs.append(field.required(path.child("mountPath"), ""))
        if mount.mount_path in mount_points:
            errs.append(field.invalid(path.child("mountPath"), mount.mount_path, "must be unique"))
        mount_points.add(mount.mount_path)
        if mount.name in devices:
            detail = "must not already exist in volumeDevices"
            errs.append(field.invalid(path.child("name"), mount.name, detail))
        if mount.mount_path in device_paths:
            detail = "must not already exist as a path in volumeDevices"
            errs.append(field.invalid(path.child("mountPath"), mount.mount_path, detail))
        errs += _validate_sub_paths(mount, path)
        errs += _validate_mount_propagation(mount, container, path.child("mountPropagation"))
        errs += _validate_recursive_read_only(mount, path.child("recursiveReadOnly"))
    return errs


# DIVERGES (fault of Go): errors in the sub path, the propagation and recursiveReadOnly name the mount that contains
# them.
# Go: pkg/apis/core/validation/validation.go, ValidateVolumeMounts: their paths lack the index of the mount.
# Why: with several mounts, the operator would not know which one is meant.
# Test: validation_test.py:test_bad_pods


def _validate_sub_paths(mount: v1.VolumeMount, fld_path: field.Path) -> Errors:
    errs: Errors = []
    if mount.sub_path:
        errs += validate_local_descending_path(mount.sub_path, fld_path.child("subPath"))
    if mount.sub_path_expr:
        if mount.sub_path:
            detail = "subPathExpr and subPath are mutually exclusive"
            errs.append(field.invalid(fld_path.child("subPathExpr"), mount.sub_path_expr, detail))
        errs += validate_local_descending_path(mount.sub_path_expr, fld_path.child("subPathExpr"))
    return errs


def _validate_mount_propagation(mount: v1.VolumeMount, container: v1.Container, fld_path: field.Path) -> Errors:
    mode = mount.mount_propagation
    if mode is None:
        return []
    if mode not in _MOUNT_PROPAGATIONS:
        return [field.not_supported(fld_path, mode, _MOUNT_PROPAGATIONS)]
    privileged = container.security_context is not None and container.security_context.privileged is True
    if mode == v1.MOUNT_PROPAGATION_BIDIRECTIONAL and not privileged:
        detail = "Bidirectional mount propagation is available only to privileged containers"
        return [field.forbidden(fld_path, detail)]
    return []


def _validate_recursive_read_only(mount: v1.VolumeMount, fld_path: field.Path) -> Errors:
    mode = mount.recursive_read_only
    if mode is None or mode == v1.RECURSIVE_READ_ONLY_DISABLED:
        return []
    if mode not in _RECURSIVE_READ_ONLY_MODES:
        return [field.not_supported(fld_path, mode, _RECURSIVE_READ_ONLY_MODES)]
    errs: Errors = []
    if not mount.read_only:
        errs.append(field.forbidden(fld_path, "may only be specified when readOnly is true"))
    if mount.mount_propagation not in (None, v1.MOUNT_PROPAGATION_NONE):
        detail = "may only be specified when mountPropagation is None or not specified"
        errs.append(field.forbidden(fld_path, detail))
    return errs


def _validate_volume_devices(container: v1.Container, volumes: Volumes, fld_path: field.Path) -> Errors:
    errs: Errors = []
    mounts = {m.name: m.mount_path for m in container.volume_mounts}
    mount_points = set(mounts.values())
    names: set[str] = set()
    paths: set[str] = set()
    for i, device in enumerate(container.volume_devices):
        path = fld_path.index(i)
        errs += _validate_device_name(device.name, names, mounts, volumes, path.child("name"))
        errs += _validate_device_path(device.device_path, paths, mount_points, path.child("devicePath"))
        if device.name:
            names.add(device.name)
    return errs


def _validate_device_name(
    name: str, names: Set[str], mounts: Mapping[str, str], volumes: Volumes, fld_path: field.Path
) -> Errors:
    errs: Errors = []
    volume = volumes.get(name)
    if not name:
        errs.append(field.required(fld_path, ""))
    if name in names:
        errs.append(field.invalid(fld_path, name, "must be unique"))
    if volume is None:
        errs.append(field.not_found(fld_path, name))
    elif volume.persistent_volume_claim is None and volume.ephemeral is None:
        detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        errs.append(field.invalid(fld_path, name, detail))
    if name in mounts:
        errs.append(field.invalid(fld_path, name, "must not already exist in volumeMounts"))
    return errs


def _validate_device_path(device_path: str, paths: set[str], mount_points: Set[str], fld_path: field.Path) -> Errors:
    errs: Errors = []
    if not device_path:
        errs.append(field.required(fld_path, ""))
    if device_path in paths:
        errs.append(field.invalid(fld_path, device_path, "must be unique"))
    if validate_path_no_backsteps(device_path, fld_path):
        errs.append(field.invalid(fld_path, device_path, "can not contain backsteps ('..')"))
    else:
        paths.add(device_path)
    if device_path in mount_points:
        errs.append(field.invalid(fld_path, device_path, "must not already exist as a path in volumeMounts"))
    return errs


def _validate_resize_policy(
    policies: Sequence[v1.ContainerResizePolicy], pod_restart_policy: str, fld_path: field.Path
) -> Errors:
    errs: Errors = []
    seen: set[str] = set()
    for i, policy in enumerate(policies):
        if policy.resource_name in seen:
            errs.append(field.duplicate(fld_path.index(i), policy.resource_name))
        seen.add(policy.resource_name)
        for value, supported in (
            (policy.resource_name, _RESIZE_RESOURCES),
            (policy.restart_policy, _RESIZE_POLICIES),
        ):
            if not value:
                errs.append(field.required(fld_path, ""))
            elif value not in supported:
                errs.append(field.not_supported(fld_path, value, supported))
        if pod_restart_policy == v1.RESTART_POLICY_NEVER and policy.restart_policy != v1.NOT_REQUIRED:
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errs.append(field.invalid(fld_path, policy.restart_policy, detail))
    return errs


def _validate_init_container_restart_policy(
    container: v1.Container, fld_path: field.Path, opts: PodValidationOptions
) -> Errors:
    policy, rules = container.restart_policy, container.restart_policy_rules
    if policy is None:
        if rules:
            detail = "must specify restartPolicy when restart rules are used"
            return [field.required(fld_path.child("restartPolicy"), detail)]
        return []
    always = policy == v1.CONTAINER_RESTART_POLICY_ALWAYS
    if not opts.allow_container_restart_policy_rules:
        return [] if always else [field.not_supported(fld_path.child("restartPolicy"), policy, ["Always"])]
    if always and not opts.allow_restart_all_containers:
        if rules:
            detail = "restartPolicyRules are not allowed for init containers with restart policy Always"
            return [field.forbidden(fld_path.child("restartPolicyRules"), detail)]
        return []
    return _validate_container_restart_policy(container, fld_path, opts)


def _validate_container_restart_policy(
    container: v1.Container, fld_path: field.Path, opts: PodValidationOptions
) -> Errors:
    errs: Errors = []
    policy, rules = container.restart_policy, container.restart_policy_rules
    policy_path, rules_path = fld_path.child("restartPolicy"), fld_path.child("restartPolicyRules")
    if policy is None and rules:
        errs.append(field.required(policy_path, "must specify restartPolicy when restart rules are used"))
    elif policy is not None and policy not in _RESTART_POLICIES:
        errs.append(field.not_supported(policy_path, policy, _RESTART_POLICIES))
    if len(rules) > 20:
        errs.append(field.too_many(rules_path, len(rules), 20))
    actions = ["Restart", "RestartAllContainers"] if opts.allow_restart_all_containers else ["Restart"]
    for i, rule in enumerate(rules):
        path = rules_path.index(i)
        if rule.action not in actions:
            errs.append(field.not_supported(path.child("action"), rule.action, actions))
        codes_path = path.child("exitCodes")
        if rule.exit_codes is None:
            errs.append(field.required(codes_path, "must be specified"))
            continue
        if rule.exit_codes.operator not in _RESTART_RULE_OPERATORS:
            operator = rule.exit_codes.operator
            errs.append(field.not_supported(codes_path.child("operator"), operator, _RESTART_RULE_OPERATORS))
        if len(rule.exit_codes.values) > 255:
            errs.append(field.too_many(codes_path.child("values"), len(rule.exit_codes.values), 255))
    return errs


def _validate_lifecycle_and_probes(container: v1.Container, pod: PodContext, fld_path: field.Path) -> Errors:
    errs: Errors = []
    grace = pod.grace_period
    lifecycle = container.lifecycle
    if lifecycle is not None:
        path = fld_path.child("lifecycle")
        if lifecycle.post_start is not None:
            errs += _validate_handler(lifecycle.post_start, grace, path.child("postStart"))
        if lifecycle.pre_stop is not None:
            errs += _validate_handler(lifecycle.pre_stop, grace, path.child("preStop"))
        if lifecycle.stop_signal is not None:
            errs += _validate_stop_signal(lifecycle.stop_signal, pod.os, path.child("stopSignal"))
    for name, probe in (
        ("livenessProbe", container.liveness_probe),
        ("startupProbe", container.startup_probe),
    ):
        if probe is None:
            continue
        path = fld_path.child(name)
        errs += _validate_probe(probe, grace, path)
        if probe.success_threshold != 1:
            errs.append(field.invalid(path.child("successThreshold"), probe.success_threshold, "must be 1"))
    readiness = container.readiness_probe
    if readiness is not None:
        path = fld_path.child("readinessProbe")
        errs += _validate_probe(readiness, grace, path)
        seconds = readiness.termination_grace_period_seconds
        if seconds is not None:
            detail = "must not be set for readinessProbes"
            errs.append(field.invalid(path.child("terminationGracePeriodSeconds"), seconds, detail))
    return errs


def _validate_stop_signal(signal: str, os: str, fld_path: field.Path) -> Errors:
    if not os:
        return [field.forbidden(fld_path, "may not be set for containers with empty `spec.os.name`")]
    supported = _STOP_SIGNALS_WINDOWS if os == "windows" else _STOP_SIGNALS_LINUX
    return [] if signal in supported else [field.not_supported(fld_path, signal, supported)]


def _validate_probe(probe: v1.Probe, grace_period: int | None, fld_path: field.Path) -> Errors:
    errs = _validate_handler(probe, grace_period, fld_path)
    for name, value in (
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ):
        errs += validate_nonnegative_field(value, fld_path.child(name))
    seconds = probe.termination_grace_period_seconds
    if seconds is not None and seconds <= 0:
        path = fld_path.child("terminationGracePeriodSeconds")
        errs.append(field.invalid(path, seconds, "must be greater than 0"))
    return errs


def _validate_handler(
    handler: v1.Probe | v1.LifecycleHandler, grace_period: int | None, fld_path: field.Path
) -> Errors:
    """Require exactly one action that is valid."""
    found: list[tuple[str, Errors]] = []
    if handler.exec is not None:
        path = fld_path.child("exec", "command")
        found.append(("exec", [] if handler.exec.command else [field.required(path, "")]))
    if handler.http_get is not None:
        found.append(("httpGet", _validate_http_get_action(handler.http_get, fld_path.child("httpGet"))))
    if handler.tcp_socket is not None:
        path = fld_path.child("tcpSocket", "port")
        found.append(("tcpSocket", validate_port_num_or_name(handler.tcp_socket.port, path)))
    if isinstance(handler, v1.Probe) and handler.grpc is not None:
        found.append(("grpc", validate_port_num_or_name(handler.grpc.port, fld_path.child("grpc", "port"))))
    if isinstance(handler, v1.LifecycleHandler) and handler.sleep is not None:
        found.append(("sleep", _validate_sleep_action(handler.sleep, grace_period, fld_path.child("sleep"))))
    if not found:
        return [field.required(fld_path, "must specify a handler type")]
    detail = "may not specify more than 1 handler type"
    return found[0][1] + [field.forbidden(fld_path.child(name), detail) for name, _ in found[1:]]


def _validate_sleep_action(sleep: v1.SleepAction, grace_period: int | None, fld_path: field.Path) -> Errors:
    if grace_period is None or 0 <= sleep.seconds <= grace_period:
        return []
    detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_period})"
    return [field.invalid(fld_path, sleep.seconds, detail)]


def _validate_http_get_action(action: v1.HTTPGetAction, fld_path: field.Path) -> Errors:
    errs: Errors = [] if action.path else [field.required(fld_path.child("path"), "")]
    errs += validate_port_num_or_name(action.port, fld_path.child("port"))
    if action.scheme not in _HTTP_SCHEMES:
        errs.append(field.not_supported(fld_path.child("scheme"), action.scheme, _HTTP_SCHEMES))
    for header in action.http_headers:
        messages = validation.is_http_header_name(header.name)
        errs += invalid_each(fld_path.child("httpHeaders"), header.name, messages)
    return errs


def validate_port_num_or_name(port: int | str | None, fld_path: field.Path) -> Errors:
    """Validate a port given by number or by the name of a container's port; a missing port is number 0."""
    if isinstance(port, str):
        return invalid_each(fld_path, port, validation.is_valid_port_name(port))
    return invalid_each(fld_path, port or 0, validation.is_valid_port_num(port or 0))
