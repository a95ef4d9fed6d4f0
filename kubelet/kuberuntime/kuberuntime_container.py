"""Start, stop, remove and inspect containers.

Go: pkg/kubelet/kuberuntime/kuberuntime_container.go
"""

from __future__ import annotations

import os
import random
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import activity, events, lifecycle
from kubelet import container as kubecontainer
from kubelet import images as kubeimages
from kubelet import types as kubetypes
from kubelet import util as kubeutil
from kubelet.activity import Activity
from kubelet.cri import errors as crierror
from kubelet.kuberuntime import helpers, labels, legacy, logs
from kubelet.kuberuntime.kuberuntime_container_linux import (
    ZERO,
    ContainerLinuxMethods,
    to_kube_container_resources,
    to_kube_container_user,
)
from kubelet.kuberuntime.kuberuntime_logs import LogMethods
from kubelet.kuberuntime.kuberuntime_sandbox import ListOptions
from kubelet.kuberuntime.kuberuntime_termination_order import TerminationOrdering
from kubelet.kuberuntime.logs import tail
from kubelet.kuberuntime.security_context import verify_run_as_non_root
from kubelet.util import format
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime import contain
from pkg.client_go.util import workqueue

if TYPE_CHECKING:
    from kubelet import cm
    from kubelet.allocation import state
    from kubelet.kuberuntime.instrumented_services import RuntimeObserver
    from kubelet.logs import container_log_manager
    from pkg.client_go.tools import record

# `MINIMUM_GRACE_PERIOD_IN_SECONDS` is the shortest time between SIGTERM and SIGKILL that a container gets.
MINIMUM_GRACE_PERIOD_IN_SECONDS = 2
# `MAX_PARALLEL_KILLS` is the number of a pod's containers that the kubelet kills at the same time, each on a thread of
# its own.
MAX_PARALLEL_KILLS = 256

# These are the reasons for killing a container.
# Go: containerKillReason
REASON_STARTUP_PROBE = "StartupProbe"
REASON_LIVENESS_PROBE = "LivenessProbe"
REASON_FAILED_POST_START_HOOK = "FailedPostStartHook"
REASON_RESTART_ALL_CONTAINERS = "RestartAllContainers"
REASON_UNKNOWN = "Unknown"


class ErrCreateContainerConfig(kubecontainer.ReasonError):
    """Signal that no container configuration could be generated from the spec."""

    reason = "CreateContainerConfigError"


class ErrPreCreateHook(kubecontainer.ReasonError):
    """Signal that a resource manager rejected the container before its creation."""

    reason = "PreCreateHookError"


class ErrCreateContainer(kubecontainer.ReasonError):
    """Signal that the runtime failed to create the container."""

    reason = "CreateContainerError"


class ErrPreStartHook(kubecontainer.ReasonError):
    """Signal that a resource manager rejected the created container before its start."""

    reason = "PreStartHookError"


class ErrPostStartHook(kubecontainer.ReasonError):
    """Signal that the container's postStart hook failed and that the kubelet has killed the container."""

    reason = "PostStartHookError"


class StartContainerError(Exception):
    """Signal that a container did not start.

    `reason` is what its waiting state shows, and `message` gives details.
    """

    def __init__(self, reason: Exception, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class StartSpec:
    """Describe a container to start; only ephemeral containers set ephemeral_container.

    Go: startSpec
    """

    container: v1.Container
    ephemeral_container: v1.EphemeralContainer | None = None

    def get_target_id(self, pod_status: kubecontainer.PodStatus) -> kubecontainer.ContainerID | None:
        """Return the ID of the container whose processes the new container must see, or None.

        Raise LookupError if that container does not exist.
        """
        if self.ephemeral_container is None or not self.ephemeral_container.target_container_name:
            return None
        name = self.ephemeral_container.target_container_name
        target = pod_status.find_container_status_by_name(name)
        if target is None:
            raise LookupError(f"unable to find target container {name}")
        return target.id


def container_start_spec(container: v1.Container) -> StartSpec:
    """Return the start spec of a regular or init container."""
    return StartSpec(container)


def ephemeral_container_start_spec(ephemeral: v1.EphemeralContainer) -> StartSpec:
    """Return the start spec of an ephemeral container, whose common fields form an ordinary container."""
    common = {name: getattr(ephemeral, name) for name in v1.Container.__struct_fields__}
    return StartSpec(v1.Container(**common), ephemeral)


@dataclass(frozen=True, slots=True)
class StartContext:
    """Hold what all containers that start in one sync of a pod share."""

    pod: v1.Pod
    pod_status: kubecontainer.PodStatus
    pod_sandbox_id: str
    pod_sandbox_config: runtimeapi.PodSandboxConfig
    pull_secrets: Sequence[v1.Secret]
    # The first IP is the primary one. With host networking the list is empty until the node knows its address.
    pod_ips: Sequence[str]

    @property
    def pod_ip(self) -> str:
        return self.pod_ips[0] if self.pod_ips else ""


# A file name with more digits cannot stem from a container's restarts, so another program has created it.
_RESTART_COUNT_LOG_FILE = re.compile(r"([0-9]{1,9})\.log(\..*)?", re.DOTALL)


def calc_restart_count_by_log_dir(path: str) -> int:
    """Return one more than the highest N of all N.log files in the directory, or 0 without any. Raise OSError."""
    try:
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return 0
    matches = (_RESTART_COUNT_LOG_FILE.match(entry.name) for entry in entries if not entry.is_dir())
    return max((int(match[1]) + 1 for match in matches if match), default=0)


class PodStateProvider(Protocol):
    """Define how the pod workers report which parts of a pod may be removed.

    Go: kuberuntime_manager.go, podStateProvider
    """

    def is_pod_termination_requested(self, uid: types.UID) -> bool: ...

    def should_pod_content_be_removed(self, uid: types.UID) -> bool: ...

    def should_pod_runtime_be_removed(self, uid: types.UID) -> bool: ...


def set_actuated_container_resources(actuated_state: state.State, pod: v1.Pod, container: v1.Container) -> None:
    """Record that these resources were applied to the container. Raise OSError.

    A limit that the container lacks is taken from the pod.
    """
    resources = container.resources
    if features.feature_gate.enabled(features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING):
        limits = kubeutil.get_limits(kubeutil.ResourceOpts(pod.spec.resources, resources))
        resources = v1.ResourceRequirements(claims=resources.claims, requests=resources.requests, limits=limits)
    actuated_state.set_container_resources(pod.metadata.uid, container.name, resources)


@dataclass(kw_only=True, eq=False, repr=False)
class ContainerMethods(ContainerLinuxMethods, LogMethods):
    """Start, stop, remove and inspect single containers."""

    os_interface: kubecontainer.OSInterface
    recorder: record.EventRecorder
    # `observer` receives a report on each container that the kubelet is about to kill.
    observer: RuntimeObserver
    pod_state_provider: PodStateProvider
    image_puller: kubeimages.ImageManager
    # `runner` runs the hooks of containers.
    runner: kubecontainer.HandlerRunner
    internal_lifecycle: cm.InternalContainerLifecycle
    # `actuated_state` holds the actuated resources, and survives restarts of the kubelet.
    actuated_state: state.State
    log_manager: container_log_manager.ContainerLogManager
    pod_logs_directory: str

    def record_container_event(
        self,
        pod: v1.Pod,
        container: v1.Container,
        container_id: str,
        event_type: str,
        reason: str,
        message: str,
    ) -> None:
        """Record an event about a container.

        Container IDs in the message are replaced by names, because the IDs would keep similar events from being counted
        together. If the event cannot be recorded, the method logs the failure, so that the caller can continue with the
        container.
        """
        if container_id:
            message = message.replace(container_id, container.name)
        with contain(
            "Failed to record an event about a container",
            pod=klog.kobj(pod),
            containerName=container.name,
            reason=reason,
        ):
            ref = kubecontainer.generate_container_ref(pod, container)
            self.recorder.event(ref, event_type, reason, message)

    def get_pod_runtime_handler(self, pod: v1.Pod) -> str:
        """Return the runtime handler for image calls. Raise the errors of the look-up."""
        if not features.feature_gate.enabled(features.RUNTIME_CLASS_IN_IMAGE_CRI_API):
            return ""
        if not pod.spec.runtime_class_name or self.runtime_class_manager is None:
            return ""
        return self.runtime_class_manager.lookup_runtime_handler(pod.spec.runtime_class_name)

    def start_container(
        self,
        ctx: golang.Context,
        start: StartContext,
        spec: StartSpec,
        image_volumes: kubecontainer.ImageVolumes,
    ) -> None:
        """Pull the image, create the container, start it and run its postStart hook.

        Raise StartContainerError.
        """
        pod, container = start.pod, spec.container
        image_ref = self._ensure_image(ctx, start, container)
        restart_count = self._restart_count(start, container)
        config, cleanup_action = self._container_config(ctx, start, spec, restart_count, image_ref, image_volumes)
        try:
            container_id = self._create_container(ctx, start, container, config)
        finally:
            if cleanup_action is not None:
                cleanup_action()
        try:
            self.runtime_service.start_container(ctx, container_id)
        except crierror.RemoteError as err:
            message = helpers.status_message(err)
            self._record_failed(pod, container, container_id, f"Error: {message}", events.FAILED_TO_START_CONTAINER)
            raise StartContainerError(kubecontainer.ErrRunContainer(), message) from err
        self.record_container_event(
            pod, container, container_id, v1.EVENT_TYPE_NORMAL, events.STARTED_CONTAINER, "Container started"
        )
        self._create_legacy_log_symlink(start, config, container_id)
        if container.lifecycle is not None and container.lifecycle.post_start is not None:
            self._run_post_start_hook(ctx, pod, container, container_id, container.lifecycle.post_start)

    def _record_failed(
        self,
        pod: v1.Pod,
        container: v1.Container,
        container_id: str,
        message: str,
        reason: str = events.FAILED_TO_CREATE_CONTAINER,
    ) -> None:
        self.record_container_event(pod, container, container_id, v1.EVENT_TYPE_WARNING, reason, message)

    def _ensure_image(self, ctx: golang.Context, start: StartContext, container: v1.Container) -> str:
        pod = start.pod
        try:
            return self.image_puller.ensure_image_exists(
                ctx,
                kubecontainer.generate_container_ref(pod, container),
                pod,
                container.image,
                start.pull_secrets,
                start.pod_sandbox_config,
                self.get_pod_runtime_handler(pod),
                container.image_pull_policy,
            )
        except Exception as err:  # Whatever prevents the pull becomes the reason why this container waits.
            self._record_failed(pod, container, "", f"Error: {helpers.status_message(err)}")
            message = err.message if isinstance(err, kubeimages.ImageError) else str(err)
            raise StartContainerError(err, message) from err

    def _restart_count(self, start: StartContext, container: v1.Container) -> int:
        status = start.pod_status.find_container_status_by_name(container.name)
        if status is not None:
            return status.restart_count + 1
        # A runtime that has lost its containers in a reboot would start again with 0.log, and write into the old log.
        # The restart count therefore continues from the existing logs.
        log_dir = self._logs_directory(start.pod, container)
        try:
            return calc_restart_count_by_log_dir(log_dir)
        except OSError as err:
            klog.info_s("Cannot calculate restartCount from the log directory", logDir=log_dir, err=err)
            return 0

    def _logs_directory(self, pod: v1.Pod, container: v1.Container) -> str:
        meta = pod.metadata
        return helpers.build_container_logs_directory(
            self.pod_logs_directory, meta.namespace, meta.name, meta.uid, container.name
        )

    def _container_config(
        self,
        ctx: golang.Context,
        start: StartContext,
        spec: StartSpec,
        restart_count: int,
        image_ref: str,
        image_volumes: kubecontainer.ImageVolumes,
    ) -> tuple[runtimeapi.ContainerConfig, Callable[[], None] | None]:
        try:
            target = spec.get_target_id(start.pod_status)
            return self.generate_container_config(
                ctx,
                spec.container,
                start.pod,
                restart_count,
                start.pod_ip,
                image_ref,
                start.pod_ips,
                target,
                image_volumes,
            )
        except Exception as err:  # A missing config map, a bad volume or a forbidden user keeps the container waiting.
            message = helpers.status_message(err)
            self._record_failed(start.pod, spec.container, "", f"Error: {message}")
            reason = ErrCreateContainerConfig()
            reason.__cause__ = err
            raise StartContainerError(reason, message) from err

    def _create_container(
        self,
        ctx: golang.Context,
        start: StartContext,
        container: v1.Container,
        config: runtimeapi.ContainerConfig,
    ) -> str:
        pod = start.pod
        try:
            # The runtime creates the container with these resources.
            set_actuated_container_resources(self.actuated_state, pod, container)
        except OSError as err:
            self._record_failed(pod, container, "", f"Error: {err}")
            raise StartContainerError(ErrCreateContainerConfig(), str(err)) from err
        try:
            self.internal_lifecycle.pre_create_container(pod, container, config)
        except Exception as err:  # Resource managers raise errors of their own.
            message = helpers.status_message(err)
            self._record_failed(pod, container, "", f"Internal PreCreateContainer hook failed: {message}")
            raise StartContainerError(ErrPreCreateHook(), message) from err
        try:
            container_id = self.runtime_service.create_container(
                ctx, start.pod_sandbox_id, config, start.pod_sandbox_config
            )
        except crierror.RemoteError as err:
            message = helpers.status_message(err)
            self._record_failed(pod, container, "", f"Error: {message}")
            raise StartContainerError(ErrCreateContainer(), message) from err
        try:
            self.internal_lifecycle.pre_start_container(pod, container, container_id)
        except Exception as err:  # Resource managers raise errors of their own.
            message = helpers.status_message(err)
            self._record_failed(
                pod,
                container,
                container_id,
                f"Internal PreStartContainer hook failed: {message}",
                events.FAILED_TO_START_CONTAINER,
            )
            raise StartContainerError(ErrPreStartHook(), message) from err
        self.record_container_event(
            pod, container, container_id, v1.EVENT_TYPE_NORMAL, events.CREATED_CONTAINER, "Container created"
        )
        return container_id

    def _create_legacy_log_symlink(
        self, start: StartContext, config: runtimeapi.ContainerConfig, container_id: str
    ) -> None:
        sandbox = start.pod_sandbox_config
        link = legacy.legacy_log_symlink(
            container_id, config.metadata.name, sandbox.metadata.name, sandbox.metadata.namespace
        )
        container_log = os.path.join(sandbox.log_directory, config.log_path)
        try:
            self.os_interface.stat(container_log)
        except FileNotFoundError:
            # Some runtimes log elsewhere. Garbage collection would only remove the dangling link again.
            return
        except OSError:
            pass
        try:
            self.os_interface.symlink(container_log, link)
        except OSError as err:
            klog.error_s(
                err,
                "Failed to create legacy symbolic link",
                path=link,
                containerID=str(container_id),
                containerLogPath=container_log,
            )

    def _run_post_start_hook(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container: v1.Container,
        container_id: str,
        handler: v1.LifecycleHandler,
    ) -> None:
        kube_container_id = kubecontainer.ContainerID(self.runtime_name, container_id)
        hook_ctx = lifecycle.hook_context(ctx)
        try:
            with activity.doing(ctx, Activity.RUNS_POST_START_HOOK):
                self.runner.run(hook_ctx, kube_container_id, pod, container, handler)
        except Exception as err:  # A hook can fail in as many ways as there are commands and servers.
            self._post_start_hook_failed(ctx, hook_ctx, pod, container, kube_container_id, err)
            raise StartContainerError(ErrPostStartHook(), str(getattr(err, "message", err))) from err

    def _post_start_hook_failed(
        self,
        ctx: golang.Context,
        hook_ctx: golang.Context,
        pod: v1.Pod,
        container: v1.Container,
        container_id: kubecontainer.ContainerID,
        err: Exception,
    ) -> None:
        """Kill the container, unless its pod is terminating anyway."""
        who = _who(pod, container, container_id)
        klog.error_s(err, "Failed to execute PostStartHook", **who)
        if hook_ctx.err() is not None:
            if self.pod_state_provider.is_pod_termination_requested(pod.metadata.uid):
                fault = "PostStartHook failed: not completed before the termination of the pod"
                self._record_failed(pod, container, container_id.id, fault, events.FAILED_POST_START_HOOK)
            # Whatever terminates the pod also stops the container and runs its preStop hook.
            return
        # The event omits the output of the hook because it may contain secrets.
        self._record_failed(pod, container, container_id.id, "PostStartHook failed", events.FAILED_POST_START_HOOK)
        try:
            self.kill_container(
                ctx,
                pod,
                container_id,
                container.name,
                "FailedPostStartHook",
                REASON_FAILED_POST_START_HOOK,
                None,
                None,
            )
        except Exception as kill_err:  # The next sync finds the container running although its hook has failed.
            klog.error_s(kill_err, "Failed to kill container", **who)

    def generate_container_config(
        self,
        ctx: golang.Context,
        container: v1.Container,
        pod: v1.Pod,
        restart_count: int,
        pod_ip: str,
        image_ref: str,
        pod_ips: Sequence[str],
        ns_target: kubecontainer.ContainerID | None,
        image_volumes: kubecontainer.ImageVolumes,
    ) -> tuple[runtimeapi.ContainerConfig, Callable[[], None] | None]:
        """Return the container configuration, and a function to call after the container's creation, or None.

        Raise any error of the functions that generate its parts.
        """
        opts, cleanup_action = self.runtime_helper.generate_run_container_options(
            ctx, pod, container, pod_ip, pod_ips, image_volumes
        )
        try:
            config = self._build_container_config(ctx, container, pod, restart_count, image_ref, opts, ns_target)
        except BaseException:
            if cleanup_action is not None:
                cleanup_action()
            raise
        return config, cleanup_action

    def _build_container_config(
        self,
        ctx: golang.Context,
        container: v1.Container,
        pod: v1.Pod,
        restart_count: int,
        image_ref: str,
        opts: kubecontainer.RunContainerOptions,
        ns_target: kubecontainer.ContainerID | None,
    ) -> runtimeapi.ContainerConfig:
        uid, username = self.get_image_user(ctx, container.image)
        verify_run_as_non_root(pod, container, uid, username)
        command, args = kubecontainer.expand_container_command_and_args(container, opts.envs)
        try:
            self.os_interface.mkdir_all(self._logs_directory(pod, container), 0o755)
        except OSError as err:
            raise OSError(f"create container log directory for container {container.name} failed: {err}") from err
        config = runtimeapi.ContainerConfig(
            metadata=runtimeapi.ContainerMetadata(name=container.name, attempt=restart_count),
            image=runtimeapi.ImageSpec(image=image_ref, user_specified_image=container.image),
            command=command,
            args=args,
            working_dir=container.working_dir,
            envs=[runtimeapi.KeyValue(key=env.name, value=env.value) for env in opts.envs],
            mounts=self._make_mounts(opts, container),
            devices=_make_devices(opts),
            CDI_devices=[runtimeapi.CDIDevice(name=device.name) for device in opts.cdi_devices],
            labels=labels.new_container_labels(container, pod),
            annotations=labels.new_container_annotations(container, pod, restart_count, opts),
            log_path=helpers.build_container_logs_path(container.name, restart_count),
            stdin=container.stdin,
            stdin_once=container.stdin_once,
            tty=container.tty,
        )
        stop_signal = helpers.get_container_config_stop_signal(container)
        if stop_signal is not None:
            config.stop_signal = stop_signal
        self.apply_platform_specific_container_config(config, container, pod, uid, username, ns_target)
        return config

    def _make_mounts(self, opts: kubecontainer.RunContainerOptions, container: v1.Container) -> list[runtimeapi.Mount]:
        relabel = _selinux_enabled()
        mounts = [
            runtimeapi.Mount(
                host_path=mount.host_path,
                container_path=mount.container_path,
                readonly=mount.read_only,
                selinux_relabel=mount.se_linux_relabel and relabel,
                propagation=mount.propagation,
                recursive_read_only=mount.recursive_read_only,
                image=mount.image,
                image_sub_path=mount.image_sub_path,
            )
            for mount in opts.mounts
        ]
        if opts.pod_container_dir and container.termination_message_path:
            path = os.path.join(opts.pod_container_dir, make_uid())
            if self._make_termination_log(path):
                mounts.append(
                    runtimeapi.Mount(
                        host_path=path,
                        container_path=os.path.join("/", container.termination_message_path),
                        selinux_relabel=relabel,
                    )
                )
        return mounts

    def _make_termination_log(self, path: str) -> bool:
        """Create the file for the container's termination message; report whether this succeeded.

        Every user may write to the file.
        """
        try:
            self.os_interface.create(path).close()
        except OSError as err:
            klog.error_s(err, "Error on creating termination-log file", path=path)
            return False
        try:
            # The umask would restrict a mode that is set on creation.
            self.os_interface.chmod(path, 0o666)
        except OSError as err:
            klog.error_s(err, "Unable to set termination-log file permissions", path=path)
        return True

    def read_last_string_from_container_logs(self, ctx: golang.Context, path: str) -> str:
        """Return the end of a log, cut to the length of a termination message."""
        end = _LastBytes(kubecontainer.MAX_CONTAINER_TERMINATION_MESSAGE_LOG_LENGTH)
        opts = logs.LogOptions(tail_lines=kubecontainer.MAX_CONTAINER_TERMINATION_MESSAGE_LOG_LINES)
        try:
            logs.read_logs(ctx, path, "", opts, self.runtime_service, end, end)
        except (OSError, ValueError) as err:
            return f"Error on reading termination message from logs: {err}"
        return end.data.decode(errors="ignore")

    def convert_to_kube_container_status(
        self, ctx: golang.Context, pod_uid: types.UID, status: runtimeapi.ContainerStatus
    ) -> kubecontainer.Status:
        """Convert the runtime's status, and add the container's termination message."""
        result = self.to_kube_container_status(pod_uid, status)
        if status.state != runtimeapi.CONTAINER_EXITED:
            return result
        annotated = labels.get_container_info_from_annotations(status.annotations)
        fallback_to_logs = (
            annotated.termination_message_policy == v1.TERMINATION_MESSAGE_FALLBACK_TO_LOGS_ON_ERROR
            and result.exit_code != 0
            # A container that never started has no logs.
            and result.reason != "ContainerCannotRun"
        )
        told = get_termination_message(status, annotated.termination_message_path, fallback_to_logs)
        message = told.text
        if told.is_in_log:
            message = self.read_last_string_from_container_logs(ctx, status.log_path)
        result.message = ": ".join(part for part in (result.message, message) if part)
        return result

    def to_kube_container_status(self, pod_uid: types.UID, status: runtimeapi.ContainerStatus) -> kubecontainer.Status:
        """Convert the runtime's status to the kubelet's type."""
        annotated = labels.get_container_info_from_annotations(status.annotations)
        name = labels.get_container_info_from_labels(status.labels).container_name
        result = kubecontainer.Status(
            id=kubecontainer.ContainerID(self.runtime_name, status.id),
            name=name,
            image=status.image.image,
            # Runtimes before 1.30 report no image ID.
            image_id=status.image_id or status.image_ref,
            image_ref=status.image_ref,
            image_runtime_handler=status.image.runtime_handler,
            hash=annotated.hash,
            restart_count=annotated.restart_count,
            state=helpers.to_kube_container_state(status.state),
            created_at=helpers.time_from_nanoseconds(status.created_at),
            resources=self._status_resources(pod_uid, name, status),
            mounts=[_to_kube_mount(mount) for mount in status.mounts],
        )
        if status.HasField("user"):
            result.user = to_kube_container_user(status.user)
        # RUNTIME_DEFAULT comes from runtimes that do not report the stop signal.
        told = status.stop_signal != runtimeapi.RUNTIME_DEFAULT
        if told and features.feature_gate.enabled(features.CONTAINER_STOP_SIGNALS):
            result.stop_signal = helpers.runtime_signal_to_string(status.stop_signal)
        if status.state != runtimeapi.CONTAINER_CREATED:
            result.started_at = helpers.time_from_nanoseconds(status.started_at)
        if status.state == runtimeapi.CONTAINER_EXITED:
            result.reason = status.reason
            result.message = status.message
            result.exit_code = status.exit_code
            result.finished_at = helpers.time_from_nanoseconds(status.finished_at)
        return result

    def _status_resources(
        self, pod_uid: types.UID, container_name: str, status: runtimeapi.ContainerStatus
    ) -> kubecontainer.ContainerResources | None:
        """Return the resources that the runtime reports; values that it omits come from the actuated resources."""
        reported = to_kube_container_resources(status.resources)
        if reported is not None and reported.memory_request is not None:
            return reported
        actuated = self.actuated_state.get_container_resources(pod_uid, container_name)
        if actuated is None:
            return reported
        requests, limits = actuated.requests, actuated.limits
        if reported is None:
            return kubecontainer.ContainerResources(
                cpu_request=requests.get(v1.RESOURCE_CPU, ZERO),
                cpu_limit=limits.get(v1.RESOURCE_CPU, ZERO),
                memory_request=requests.get(v1.RESOURCE_MEMORY, ZERO),
                memory_limit=limits.get(v1.RESOURCE_MEMORY, ZERO),
            )
        memory = requests.get(v1.RESOURCE_MEMORY, ZERO)
        if not memory.is_zero():
            reported.memory_request = memory
        return reported

    def get_containers(self, ctx: golang.Context, opts: ListOptions) -> Sequence[runtimeapi.Container]:
        """List the containers that match the options.

        Go: getContainers
        """
        return self.runtime_service.list_containers(ctx, opts.container_filter())

    def get_pod_container_statuses(
        self, ctx: golang.Context, pod: kubecontainer.Pod, active_pod_sandbox_id: str
    ) -> tuple[list[kubecontainer.Status], list[kubecontainer.Status]]:
        """Return the statuses of all containers of the pod, and of those in its active sandbox, newest first.

        Containers that no longer exist are omitted.
        """
        statuses: list[kubecontainer.Status] = []
        active: list[kubecontainer.Status] = []
        for container in pod.containers:
            try:
                response = self.runtime_service.container_status(ctx, container.id.id, False)
            except crierror.RemoteError as err:
                if crierror.is_not_found(err):
                    continue
                klog.v(4).info_s("ContainerStatus return error", containerID=container.id.id, err=err)
                raise
            status = self.convert_to_kube_container_status(ctx, pod.id, response.status)
            statuses.append(status)
            if container.pod_sandbox_id == active_pod_sandbox_id:
                active.append(status)
        return (
            helpers.sort_container_statuses_by_created(statuses),
            helpers.sort_container_statuses_by_created(active),
        )

    def _execute_pre_stop_hook(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container_id: kubecontainer.ContainerID,
        container: v1.Container,
        handler: v1.LifecycleHandler,
        grace_period: int,
    ) -> int:
        """Run the hook, wait for it at most grace_period seconds, and return the time waited, rounded down.

        A hook that takes longer keeps running until ctx is cancelled.
        """
        who = _who(pod, container, container_id)
        klog.v(3).info_s("Running preStop hook", **who)
        start = self.clock.monotonic()
        timer = self.clock.new_timer(grace_period)
        expired = threading.Event()
        done: golang.Channel[None] = golang.Channel()
        args = (pod, container_id, container, handler, expired, done)
        try:
            try:
                golang.go(self._run_pre_stop_hook, ctx, *args, name=f"prestop-{container_id.id[:12]}")
            except golang.ThreadError as err:
                klog.error_s(err, "Running the preStop hook on the thread that kills the container", **who)
                bounded, cancel = golang.with_timeout(ctx, grace_period)
                self._run_pre_stop_hook(bounded, *args)
                cancel()
            selected = golang.select(done, timer.channel, ctx.done())
            if selected.took(done):
                klog.v(3).info_s("PreStop hook completed", **who)
            elif selected.took(timer.channel):
                expired.set()
                klog.v(2).info_s("PreStop hook not completed in grace period", **who, gracePeriod=grace_period)
                # DIVERGES (safer): the kubelet records an event if a preStop hook outlasts the grace period.
                # Go: pkg/kubelet/kuberuntime/kuberuntime_container.go,
                # (*kubeGenericRuntimeManager).executePreStopHook: the Go kubelet only logs this.
                # Why: a user who asks why a pod needed all of its grace period then finds the hook named.
                # Test: kuberuntime_container_test.py:TestPreStop.test_is_waited_for_no_longer_than_the_grace_period
                fault = f"PreStopHook failed: not completed in grace period of {grace_period}s"
                self._record_failed(pod, container, container_id.id, fault, events.FAILED_PRE_STOP_HOOK)
        finally:
            timer.stop()
        return int(self.clock.monotonic() - start)

    def _run_pre_stop_hook(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container_id: kubecontainer.ContainerID,
        container: v1.Container,
        handler: v1.LifecycleHandler,
        expired: threading.Event,
        done: golang.Channel[None],
    ) -> None:
        try:
            self.runner.run(ctx, container_id, pod, container, handler)
        except Exception as err:
            # A hook can fail in as many ways as there are commands, and the container stops anyway.
            if ctx.err() is not None or expired.is_set():
                return
            klog.error_s(err, "PreStop hook failed", **_who(pod, container, container_id))
            # The event omits the output of the hook because it may contain secrets.
            self._record_failed(pod, container, container_id.id, "PreStopHook failed", events.FAILED_PRE_STOP_HOOK)
        finally:
            done.close()

    def restore_specs_from_container_labels(
        self, ctx: golang.Context, container_id: kubecontainer.ContainerID
    ) -> tuple[v1.Pod, v1.Container]:
        """Rebuild the parts of the specs that a kill needs, for a pod that is gone or only partially decoded.

        Raise crierror.RemoteError.
        """
        status = self.runtime_service.container_status(ctx, container_id.id, False).status
        labeled = labels.get_container_info_from_labels(status.labels)
        annotated = labels.get_container_info_from_annotations(status.annotations)
        pod = v1.Pod(
            metadata=metav1.ObjectMeta(
                uid=labeled.pod_uid,
                name=labeled.pod_name,
                namespace=labeled.pod_namespace,
                deletion_grace_period_seconds=annotated.pod_deletion_grace_period,
            ),
            spec=v1.PodSpec(
                containers=[],
                termination_grace_period_seconds=annotated.pod_termination_grace_period,
            ),
        )
        container = v1.Container(
            name=labeled.container_name,
            ports=annotated.container_ports,
            termination_message_path=annotated.termination_message_path,
        )
        if annotated.pre_stop_handler is not None:
            container.lifecycle = v1.Lifecycle(pre_stop=annotated.pre_stop_handler)
        return pod, container

    def kill_container(
        self,
        ctx: golang.Context,
        pod: v1.Pod | None,
        container_id: kubecontainer.ContainerID,
        container_name: str,
        message: str,
        reason: str,
        grace_period_override: int | None,
        ordering: TerminationOrdering | None,
    ) -> None:
        """Run the preStop hook and stop the container; block until it has stopped.

        grace_period_override, in seconds, replaces the pod's grace period. Raise crierror.RemoteError, or LookupError
        if the pod has no such container.
        """
        if pod is None or isinstance(pod, v1.PartialPod):
            pod, container = self.restore_specs_from_container_labels(ctx, container_id)
        else:
            spec = kubecontainer.get_container_spec(pod, container_name)
            if spec is None:
                raise LookupError(
                    f'failed to get containerSpec "{container_name}" (id="{container_id}") in pod'
                    f' "{format.pod(pod)}" when killing container for reason "{message}"'
                )
            container = spec
        who = _who(pod, container, container_id)
        self.observer.killing(pod.metadata.uid, container.name, reason)
        grace_period = set_termination_grace_period(pod, container, container_id, reason)
        self.record_container_event(
            pod,
            container,
            container_id.id,
            v1.EVENT_TYPE_NORMAL,
            events.KILLING_CONTAINER,
            message or f"Stopping container {container.name}",
        )
        if grace_period_override is not None:
            grace_period = grace_period_override
            klog.v(3).info_s("Killing container with a grace period override", **who, gracePeriod=grace_period)
        # DIVERGES (fault of Go): a preStop hook that outlasts the grace period ends when its container has stopped.
        # Go: pkg/kubelet/kuberuntime/kuberuntime_container.go, (*kubeGenericRuntimeManager).killContainer: the hook
        # keeps running.
        # Why: hooks that never end, such as unanswered HTTP requests, would accumulate with each pod.
        # Test: kuberuntime_container_test.py:TestPreStop.test_is_waited_for_no_longer_than_the_grace_period
        hook_ctx, end_hook = golang.with_cancel(ctx)
        try:
            grace_period = self._spend_grace_period(hook_ctx, pod, container_id, container, grace_period, ordering)
            klog.v(2).info_s("Killing container with a grace period", **who, gracePeriod=grace_period)
            self._stop_container(ctx, container_id, grace_period, who)
        finally:
            end_hook()
        klog.v(3).info_s("Container exited normally", **who)
        if ordering is not None:
            ordering.container_terminated(container_name)

    def _stop_container(
        self, ctx: golang.Context, container_id: kubecontainer.ContainerID, grace_period: int, who: Mapping[str, object]
    ) -> None:
        """Stop the container; return normally if it no longer exists. Raise crierror.RemoteError."""
        try:
            self.runtime_service.stop_container(ctx, container_id.id, grace_period)
        except golang.Canceled:
            raise  # The caller has cancelled the call, so there is nothing to log.
        except crierror.RemoteError as err:
            if not crierror.is_not_found(err):
                klog.error_s(err, "Container termination failed with gracePeriod", **who, gracePeriod=grace_period)
                raise

    def _spend_grace_period(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container_id: kubecontainer.ContainerID,
        container: v1.Container,
        grace_period: int,
        ordering: TerminationOrdering | None,
    ) -> int:
        """Return the grace period that is left after the preStop hook and the wait for the container's turn.

        The result is never less than 2 seconds.
        """
        pre_stop = container.lifecycle.pre_stop if container.lifecycle is not None else None
        if pre_stop is not None and grace_period > 0:
            grace_period -= self._execute_pre_stop_hook(ctx, pod, container_id, container, pre_stop, grace_period)
        if ordering is not None and grace_period > 0:
            grace_period -= int(ordering.wait_for_turn(ctx, container.name, grace_period))
        return max(grace_period, MINIMUM_GRACE_PERIOD_IN_SECONDS)

    def kill_containers_with_sync_result(
        self,
        ctx: golang.Context,
        pod: v1.Pod | None,
        running_pod: kubecontainer.Pod,
        grace_period_override: int | None,
    ) -> list[kubecontainer.SyncResult]:
        """Kill all containers in parallel, but sidecars after the containers that they serve.

        DIVERGES (safer): the kubelet kills at most MAX_PARALLEL_KILLS containers at a time, sidecars last.
        Go: pkg/kubelet/kuberuntime/kuberuntime_container.go, (*kubeGenericRuntimeManager).killContainersWithSyncResult:
        the Go kubelet has no limit.
        Why: a pod with thousands of containers would use up the threads of the machine.
        Test: kuberuntime_container_test.py:TestKillContainers.test_of_a_pod_with_many_does_not_take_all_threads
        """
        ordering = None
        if pod is not None and kubetypes.has_restartable_init_container(pod):
            names = [container.name for container in running_pod.containers]
            ordering = TerminationOrdering(pod, names, self.clock)
        results = [kubecontainer.SyncResult(kubecontainer.KILL_CONTAINER, c.name) for c in running_pod.containers]
        to_kill = _in_order_of_termination(pod, list(zip(running_pod.containers, results, strict=True)))

        def kill(index: int) -> None:
            container, result = to_kill[index]
            self._kill_one(ctx, pod, running_pod, container, grace_period_override, ordering, result)

        # Once ctx is cancelled, each kill reports the cancellation in its result. Therefore parallelize_until gets
        # another context.
        with activity.doing(ctx, Activity.STOPS_CONTAINERS):
            workqueue.parallelize_until(
                golang.background(), MAX_PARALLEL_KILLS, len(to_kill), kill, name=f"kill-{running_pod.id}"
            )
        return results

    def _kill_one(
        self,
        ctx: golang.Context,
        pod: v1.Pod | None,
        running_pod: kubecontainer.Pod,
        container: kubecontainer.Container,
        grace_period_override: int | None,
        ordering: TerminationOrdering | None,
        result: kubecontainer.SyncResult,
    ) -> None:
        try:
            self.kill_container(
                ctx, pod, container.id, container.name, "", REASON_UNKNOWN, grace_period_override, ordering
            )
        except Exception as err:
            # Any failure becomes this container's result, and the other containers are killed anyway.
            result.fail(kubecontainer.ErrKillContainer(), str(err))
            if isinstance(err, golang.Canceled):
                return
            klog.error_s(
                err,
                "Kill container failed",
                pod=klog.kref(running_pod.namespace, running_pod.name),
                podUID=running_pod.id,
                containerName=container.name,
                containerID=str(container.id),
            )

    def prune_init_containers_before_start(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> None:
        """Keep only the last run of each init container."""
        ended = (kubecontainer.CONTAINER_STATE_EXITED, kubecontainer.CONTAINER_STATE_UNKNOWN)
        for container in pod.spec.init_containers:
            runs = [s for s in pod_status.get_container_statuses_by_name(container.name) if s.state in ended]
            self._remove_containers(ctx, pod, "init container", runs[1:])

    def purge_init_containers(self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> None:
        """Remove all runs of all init containers, which must have been stopped."""
        for container in pod.spec.init_containers:
            runs = pod_status.get_container_statuses_by_name(container.name)
            self._remove_containers(ctx, pod, "init container", runs)

    def purge_unstarted_containers(self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> None:
        """Remove regular containers that were created but never started, and whose sandbox is gone.

        DIVERGES (fault of Go): the kubelet removes a container that was created but never started when its sandbox is
        lost.
        Go: pkg/kubelet/kuberuntime/kuberuntime_container.go, HasAnyRegularContainerCreated: the Go kubelet takes the
        container as proof that the pod is initialized, even in the next sandbox.
        Why: regular containers would start while the init containers run.
        Test: kuberuntime_manager_test.py:test_sandbox_that_is_lost_before_a_container_starts_is_made_anew
        """
        for container in pod.spec.containers:
            runs = pod_status.get_container_statuses_by_name(container.name)
            unstarted = [run for run in runs if run.state is kubecontainer.CONTAINER_STATE_CREATED]
            self._remove_containers(ctx, pod, "container that was never started", unstarted)

    def _remove_containers(
        self, ctx: golang.Context, pod: v1.Pod, what: str, statuses: Iterable[kubecontainer.Status]
    ) -> None:
        for status in statuses:
            klog.v(4).info_s(f"Removing {what}", containerName=status.name, containerID=status.id.id)
            try:
                self.remove_container(ctx, status.id.id, False)
            except Exception as err:  # Garbage collection retries what could not be removed.
                klog.error_s(
                    err,
                    f"Failed to remove pod {what}; Skipping pod",
                    containerName=status.name,
                    pod=klog.kobj(pod),
                )

    def get_container_logs(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container_id: kubecontainer.ContainerID,
        log_options: v1.PodLogOptions,
        stdout: kubecontainer.BinaryWriter | None,
        stderr: kubecontainer.BinaryWriter | None,
    ) -> None:
        """Copy a container's log, as read_logs does.

        Raise LookupError if the runtime returns no status for the container.
        """
        try:
            response = self.runtime_service.container_status(ctx, container_id.id, False)
        except crierror.RemoteError as err:
            klog.v(4).info_s("Failed to get container status", containerID=container_id, err=err)
            raise LookupError(f"unable to retrieve container logs for {container_id}") from err
        self.read_logs(ctx, response.status.log_path, container_id.id, log_options, stdout, stderr)

    def get_exec(
        self,
        ctx: golang.Context,
        id: kubecontainer.ContainerID,
        cmd: Sequence[str],
        stdin: bool,
        stdout: bool,
        stderr: bool,
        tty: bool,
    ) -> str:
        """Return the URL at which the runtime serves the exec."""
        request = runtimeapi.ExecRequest(
            container_id=id.id, cmd=cmd, tty=tty, stdin=stdin, stdout=stdout, stderr=stderr
        )
        return self.runtime_service.exec(ctx, request).url

    def get_attach(
        self,
        ctx: golang.Context,
        id: kubecontainer.ContainerID,
        stdin: bool,
        stdout: bool,
        stderr: bool,
        tty: bool,
    ) -> str:
        """Return the URL at which the runtime serves the attach."""
        request = runtimeapi.AttachRequest(container_id=id.id, stdin=stdin, stdout=stdout, stderr=stderr, tty=tty)
        return self.runtime_service.attach(ctx, request).url

    def run_in_container(
        self, ctx: golang.Context, id: kubecontainer.ContainerID, cmd: Sequence[str], timeout: float
    ) -> bytes:
        """Run a command; return its stdout followed by its stderr. Raise the errors of runtime_service.exec_sync."""
        stdout, stderr = self.runtime_service.exec_sync(ctx, id.id, cmd, timeout)
        return stdout + stderr

    def remove_container(self, ctx: golang.Context, container_id: str, keep_logs: bool) -> None:
        """Remove an exited container, but first its logs, so that a failure leaves the container for a retry.

        Raise OSError or crierror.RemoteError.
        """
        klog.v(4).info_s("Removing container", containerID=str(container_id))
        self.internal_lifecycle.post_stop_container(container_id)
        if not keep_logs:
            self._remove_container_log(ctx, container_id)
        self.runtime_service.remove_container(ctx, container_id)

    def _remove_container_log(self, ctx: golang.Context, container_id: str) -> None:
        self.log_manager.clean(ctx, container_id)
        status = self.runtime_service.container_status(ctx, container_id, False).status
        labeled = labels.get_container_info_from_labels(status.labels)
        link = legacy.legacy_log_symlink(container_id, labeled.container_name, labeled.pod_name, labeled.pod_namespace)
        try:
            self.os_interface.remove(link)
        except FileNotFoundError:
            return
        except OSError as err:
            raise OSError(
                f'failed to remove container "{container_id}" log legacy symbolic link "{link}": {err}'
            ) from err

    def delete_container(self, ctx: golang.Context, container_id: kubecontainer.ContainerID) -> None:
        """Remove an exited container with its logs."""
        self.remove_container(ctx, container_id.id, False)


def _who(pod: v1.Pod, container: v1.Container, container_id: kubecontainer.ContainerID) -> dict[str, object]:
    return {
        "pod": klog.kobj(pod),
        "podUID": pod.metadata.uid,
        "containerName": container.name,
        "containerID": str(container_id),
    }


def _in_order_of_termination(
    pod: v1.Pod | None, containers: list[tuple[kubecontainer.Container, kubecontainer.SyncResult]]
) -> list[tuple[kubecontainer.Container, kubecontainer.SyncResult]]:
    """Sort sidecars after the containers that they serve, the last one in the spec first."""
    places = {} if pod is None else {init.name: i for i, init in enumerate(pod.spec.init_containers, 1)}
    # False sorts before True, so containers that are not init containers come first.
    return sorted(containers, key=lambda each: (each[0].name in places, -places.get(each[0].name, 0)))


def _make_devices(opts: kubecontainer.RunContainerOptions) -> list[runtimeapi.Device]:
    return [
        runtimeapi.Device(
            host_path=device.path_on_host,
            container_path=device.path_in_container,
            permissions=device.permissions,
        )
        for device in opts.devices
    ]


def _selinux_enabled() -> bool:
    return os.path.exists("/sys/fs/selinux/enforce")


def _to_kube_mount(mount: runtimeapi.Mount) -> kubecontainer.Mount:
    return kubecontainer.Mount(
        host_path=mount.host_path,
        container_path=mount.container_path,
        read_only=mount.readonly,
        recursive_read_only=mount.recursive_read_only,
        se_linux_relabel=mount.selinux_relabel,
        propagation=mount.propagation,
        image=mount.image if mount.HasField("image") else None,
        image_sub_path=mount.image_sub_path,
    )


class _LastBytes:
    """Keep only the end of the written data.

    Go: k8s.io/utils/buffer/ring_fixed.go (TypedRingFixed)
    """

    def __init__(self, limit: int) -> None:
        self.data = b""
        self._limit = limit

    def write(self, data: bytes, /) -> int:
        self.data = (self.data + data[-self._limit :])[-self._limit :]
        return len(data)


def make_uid() -> str:
    """Return eight random hexadecimal digits, which make the file names of a container's instances unique."""
    return f"{random.getrandbits(32):08x}"


@dataclass(frozen=True, slots=True)
class TerminationMessage:
    """Hold the termination message of a container."""

    # `text` is what the container wrote to its termination message file.
    text: str = ""
    # `is_in_log` tells whether the caller must use the end of the log instead.
    is_in_log: bool = False


def get_termination_message(
    status: runtimeapi.ContainerStatus, termination_message_path: str, fallback_to_logs: bool
) -> TerminationMessage:
    if not termination_message_path:
        return TerminationMessage(is_in_log=fallback_to_logs)
    container_path = os.path.join("/", termination_message_path)
    mount = next((m for m in status.mounts if m.container_path == container_path), None)
    if mount is None:
        return TerminationMessage(is_in_log=fallback_to_logs)
    try:
        data = tail.read_at_most(mount.host_path, kubecontainer.MAX_CONTAINER_TERMINATION_MESSAGE_LENGTH)
    except FileNotFoundError:
        return TerminationMessage(is_in_log=fallback_to_logs)
    except OSError as err:
        return TerminationMessage(f"Error on reading termination log {mount.host_path}: {err}")
    return TerminationMessage(data.decode(errors="ignore"), is_in_log=fallback_to_logs and not data)


def has_any_regular_container_created(pod: v1.Pod, pod_status: kubecontainer.PodStatus) -> bool:
    """Report whether a regular container was created, which proves that all init containers have finished."""
    for container in pod.spec.containers:
        status = pod_status.find_container_status_by_name(container.name)
        if status is not None and status.state is not kubecontainer.CONTAINER_STATE_UNKNOWN:
            return True
    return False


def set_termination_grace_period(
    pod: v1.Pod, container: v1.Container, container_id: kubecontainer.ContainerID, reason: str
) -> int:
    """Return the grace period in seconds: that of the deletion, else of the failed probe, else of the pod."""
    if pod.metadata.deletion_grace_period_seconds is not None:
        return pod.metadata.deletion_grace_period_seconds
    pod_grace_period = pod.spec.termination_grace_period_seconds
    if pod_grace_period is None:
        return MINIMUM_GRACE_PERIOD_IN_SECONDS
    probes = {REASON_STARTUP_PROBE: container.startup_probe, REASON_LIVENESS_PROBE: container.liveness_probe}
    probe = probes.get(reason)
    if probe is None or probe.termination_grace_period_seconds is None:
        return pod_grace_period
    if probe.termination_grace_period_seconds > pod_grace_period:
        klog.v(4).info_s(
            "Using probe-level grace period that is greater than the pod-level grace period",
            **_who(pod, container, container_id),
            probeType=reason,
            probeGracePeriod=probe.termination_grace_period_seconds,
            podGracePeriod=pod_grace_period,
        )
    return probe.termination_grace_period_seconds
