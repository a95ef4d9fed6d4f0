"""Generate the configuration of sandboxes from pod specs, create sandboxes, and read their IPs.

Go: pkg/kubelet/kuberuntime/kuberuntime_sandbox.go
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet import sysctl
from kubelet import types as kubetypes
from kubelet import util as kubeutil
from kubelet.kuberuntime import helpers, labels, security_context
from kubelet.kuberuntime import util as runtimeutil
from kubelet.kuberuntime.kuberuntime_sandbox_linux import SandboxLinuxMethods
from kubelet.util import format
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types

if TYPE_CHECKING:
    from kubelet.cri import apis as internalapi


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Select the sandboxes or containers to list; all fields are optional.

    Go: kuberuntime_container.go, listOptions
    """

    pod_uid: types.UID = types.UID("")
    only_running_ready: bool = False

    def container_filter(self) -> runtimeapi.ContainerFilter:
        """Return the filter for containers.

        Go: containerFilter
        """
        container_filter = runtimeapi.ContainerFilter(label_selector=self._label_selector())
        if self.only_running_ready:
            container_filter.state.CopyFrom(runtimeapi.ContainerStateValue(state=runtimeapi.CONTAINER_RUNNING))
        return container_filter

    def sandbox_filter(self) -> runtimeapi.PodSandboxFilter:
        """Return the filter for sandboxes.

        Go: sandboxFilter
        """
        sandbox_filter = runtimeapi.PodSandboxFilter(label_selector=self._label_selector())
        if self.only_running_ready:
            sandbox_filter.state.CopyFrom(runtimeapi.PodSandboxStateValue(state=runtimeapi.SANDBOX_READY))
        return sandbox_filter

    def _label_selector(self) -> dict[str, str]:
        return {kubetypes.KUBERNETES_POD_UID_LABEL: self.pod_uid} if self.pod_uid else {}


class SandboxError(Exception):
    """Signal that a sandbox could not be created. `message` names the pod, and str() is the cause alone."""

    def __init__(self, message: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.message = message


@dataclass(kw_only=True, eq=False, repr=False)
class SandboxMethods(SandboxLinuxMethods):
    """Create and inspect sandboxes."""

    runtime_service: internalapi.RuntimeService
    os_interface: kubecontainer.OSInterface
    pod_logs_directory: str

    def create_pod_sandbox(self, ctx: golang.Context, pod: v1.Pod, attempt: int) -> str:
        """Create a sandbox and return its ID. Raise SandboxError."""
        try:
            config = self.generate_pod_sandbox_config(ctx, pod, attempt)
        except Exception as err:
            # A fault in DNS, host name, runtime class or security settings ends this attempt in each case.
            klog.error_s(err, "Failed to generate sandbox config for pod", pod=klog.kobj(pod))
            message = f'Failed to generate sandbox config for pod "{format.pod(pod)}": {err}'
            raise SandboxError(message, err) from err
        try:
            self.os_interface.mkdir_all(config.log_directory, 0o755)
        except OSError as err:
            klog.error_s(err, "Failed to create log directory for pod", pod=klog.kobj(pod))
            message = f'Failed to create log directory for pod "{format.pod(pod)}": {err}'
            raise SandboxError(message, err) from err
        try:
            runtime_handler = self._lookup_runtime_handler(pod)
            return self.runtime_service.run_pod_sandbox(ctx, config, runtime_handler)
        except Exception as err:  # Either the runtime refuses, or the runtime class is unknown.
            klog.error_s(err, "Failed to create sandbox for pod", pod=klog.kobj(pod))
            raise SandboxError(f'Failed to create sandbox for pod "{format.pod(pod)}": {err}', err) from err

    def _lookup_runtime_handler(self, pod: v1.Pod) -> str:
        if self.runtime_class_manager is None:
            return ""
        handler = self.runtime_class_manager.lookup_runtime_handler(pod.spec.runtime_class_name)
        if handler:
            klog.v(2).info_s("Running pod with runtime handler", pod=klog.kobj(pod), runtimeHandler=handler)
        return handler

    def generate_pod_sandbox_config(
        self, ctx: golang.Context, pod: v1.Pod, attempt: int
    ) -> runtimeapi.PodSandboxConfig:
        """Generate the configuration of the pod's sandbox. Raise ValueError and the errors of the runtime helper."""
        meta = pod.metadata
        config = runtimeapi.PodSandboxConfig(
            metadata=runtimeapi.PodSandboxMetadata(
                name=meta.name, namespace=meta.namespace, uid=meta.uid, attempt=attempt
            ),
            labels=labels.new_pod_labels(pod),
            annotations=labels.new_pod_annotations(pod),
            dns_config=self.runtime_helper.get_pod_dns(ctx, pod),
            log_directory=helpers.build_pod_logs_directory(
                self.pod_logs_directory, meta.namespace, meta.name, meta.uid
            ),
            port_mappings=_port_mappings(pod),
            linux=self._generate_pod_sandbox_linux_config(pod),
        )
        if not kubecontainer.is_host_network_pod(pod):
            hostname, domain = self.runtime_helper.generate_pod_host_name_and_domain(pod)
            config.hostname = kubeutil.get_nodename_for_kernel(hostname, domain, pod.spec.set_hostname_as_fqdn)
        self.apply_sandbox_resources(pod, config)
        return config

    def _generate_pod_sandbox_linux_config(self, pod: v1.Pod) -> runtimeapi.LinuxPodSandboxConfig:
        sc = runtimeapi.LinuxSandboxSecurityContext(
            privileged=kubecontainer.has_privileged_container(pod),
            # The sandbox always uses the runtime's default profile, so that containers can have stricter ones.
            seccomp=runtimeapi.SecurityProfile(profile_type=runtimeapi.SecurityProfile.RuntimeDefault),
            namespace_options=runtimeutil.namespaces_for_pod(pod, self.runtime_helper, self.runtime_class_manager),
        )
        pod_sc = pod.spec.security_context
        if pod_sc is not None:
            self._apply_pod_security_context(sc, pod, pod_sc)
        return runtimeapi.LinuxPodSandboxConfig(
            cgroup_parent=self.runtime_helper.get_pod_cgroup_parent(pod),
            security_context=sc,
            sysctls=sysctl.convert_pod_sysctls_variable_to_dots_separator(pod_sc),
        )

    def _apply_pod_security_context(
        self,
        sc: runtimeapi.LinuxSandboxSecurityContext,
        pod: v1.Pod,
        pod_sc: v1.PodSecurityContext,
    ) -> None:
        if pod_sc.run_as_user is not None:
            sc.run_as_user.CopyFrom(runtimeapi.Int64Value(value=pod_sc.run_as_user))
        if pod_sc.run_as_group is not None:
            sc.run_as_group.CopyFrom(runtimeapi.Int64Value(value=pod_sc.run_as_group))
        if pod_sc.fs_group is not None:
            sc.supplemental_groups.append(pod_sc.fs_group)
        sc.supplemental_groups.extend(self.runtime_helper.get_extra_supplemental_groups_for_pod(pod))
        sc.supplemental_groups.extend(pod_sc.supplemental_groups)
        if pod_sc.supplemental_groups_policy is not None:
            sc.supplemental_groups_policy = security_context.to_runtime_supplemental_groups_policy(
                pod_sc.supplemental_groups_policy
            )
        selinux = security_context.convert_to_runtime_selinux_option(pod_sc.se_linux_options)
        if selinux is not None:
            sc.selinux_options.CopyFrom(selinux)

    def determine_pod_sandbox_ips(
        self, pod_namespace: str, pod_name: str, pod_sandbox: runtimeapi.PodSandboxStatus
    ) -> list[str]:
        """Return the sandbox's IPs, the primary one first.

        The list is empty with host networking, and if any of the IPs is invalid.
        """
        pod = klog.kref(pod_namespace, pod_name)
        if not pod_sandbox.HasField("network"):
            klog.info_s("Pod Sandbox status doesn't have network information, cannot report IPs", pod=pod)
            return []
        network = pod_sandbox.network
        ips = [network.ip] if network.ip else []
        ips += [additional.ip for additional in network.additional_ips]
        for index, ip in enumerate(ips):
            if _is_ip(ip):
                continue
            which = "primary" if index == 0 and network.ip else "additional"
            klog.info_s(f"Pod Sandbox reported an unparseable {which} IP", pod=pod, IP=ip)
            return []
        return ips

    def get_sandboxes(self, ctx: golang.Context, opts: ListOptions) -> Sequence[runtimeapi.PodSandbox]:
        """List the sandboxes that match the options.

        Go: kuberuntime_container.go, getSandboxes
        """
        return self.runtime_service.list_pod_sandbox(ctx, opts.sandbox_filter())

    def get_sandbox_id_by_pod_uid(self, ctx: golang.Context, pod_uid: types.UID) -> list[str]:
        """Return the IDs of the pod's sandboxes, newest first."""
        return helpers.sandbox_ids(self.get_sandboxes(ctx, ListOptions(pod_uid=pod_uid)))

    def get_port_forward(
        self, ctx: golang.Context, pod_name: str, pod_namespace: str, pod_uid: types.UID, ports: Sequence[int]
    ) -> str:
        """Return the URL at which the runtime serves the port forwarding.

        Raise LookupError if the pod has no sandbox.
        """
        ids = self.get_sandbox_id_by_pod_uid(ctx, pod_uid)
        if not ids:
            raise LookupError(f"failed to find sandboxID for pod {format.pod_desc(pod_name, pod_namespace, pod_uid)}")
        request = runtimeapi.PortForwardRequest(pod_sandbox_id=ids[0], port=ports)
        return self.runtime_service.port_forward(ctx, request).url


def _port_mappings(pod: v1.Pod) -> list[runtimeapi.PortMapping]:
    return [
        runtimeapi.PortMapping(
            host_ip=port.host_ip,
            host_port=port.host_port,
            container_port=port.container_port,
            protocol=helpers.to_runtime_protocol(port.protocol),
        )
        for container in pod.spec.containers
        for port in kubecontainer.make_port_mappings(container)
    ]


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    # The API server rejects an IP with a zone, and with it the whole status of the pod.
    return "%" not in text
