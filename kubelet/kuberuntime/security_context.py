"""Convert the security settings of a container for the runtime.

Go: pkg/kubelet/kuberuntime/security_context.go, security_context_others.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.kuberuntime import util as runtimeutil
from kubelet.kuberuntime.helpers import HelperMethods, get_app_armor_profile
from kubelet.util import format
from pkg import securitycontext
from pkg.api.core import v1

if TYPE_CHECKING:
    from kubelet import container as kubecontainer
    from kubelet import runtimeclass

_MAX_USER_ID = 2**31 - 1
# An error quotes this many characters of an image's user, because the user in an image may be megabytes long.
MAX_SHOWN_USER_LENGTH = 256


@dataclass(kw_only=True, eq=False, repr=False)
class SecurityContextMethods(HelperMethods):
    """Compute the security settings of containers."""

    runtime_helper: kubecontainer.RuntimeHelper
    # `runtime_class_manager` is None without an API server, because there are no RuntimeClasses then.
    runtime_class_manager: runtimeclass.Manager | None
    seccomp_default: bool

    def determine_effective_security_context(
        self, pod: v1.Pod, container: v1.Container, uid: int | None, username: str
    ) -> runtimeapi.LinuxContainerSecurityContext:
        """Return the container's security settings; `uid` and `username` are those of the image.

        Raise ValueError for settings that the runtime does not support.
        """
        effective = securitycontext.determine_effective_security_context(pod, container)
        synthesized = convert_to_runtime_security_context(effective)
        synthesized.seccomp.CopyFrom(
            self.get_seccomp_profile(pod.spec.security_context, container.security_context, self.seccomp_default)
        )
        apparmor, synthesized.apparmor_profile = get_app_armor_profile(pod, container)
        if apparmor is not None:
            synthesized.apparmor.CopyFrom(apparmor)
        if not synthesized.HasField("run_as_user"):
            if uid is not None:
                synthesized.run_as_user.CopyFrom(runtimeapi.Int64Value(value=uid))
            synthesized.run_as_username = username
        synthesized.namespace_options.CopyFrom(
            runtimeutil.namespaces_for_pod(pod, self.runtime_helper, self.runtime_class_manager)
        )
        self._add_supplemental_groups(synthesized, pod)
        synthesized.no_new_privs = securitycontext.add_no_new_privileges(effective)
        synthesized.masked_paths.extend(securitycontext.convert_to_runtime_masked_paths(effective.proc_mount))
        synthesized.readonly_paths.extend(securitycontext.convert_to_runtime_readonly_paths(effective.proc_mount))
        return synthesized

    def _add_supplemental_groups(self, synthesized: runtimeapi.LinuxContainerSecurityContext, pod: v1.Pod) -> None:
        pod_sc = pod.spec.security_context
        if pod_sc is not None:
            if pod_sc.fs_group is not None:
                synthesized.supplemental_groups.append(pod_sc.fs_group)
            synthesized.supplemental_groups.extend(pod_sc.supplemental_groups)
            if pod_sc.supplemental_groups_policy is not None:
                synthesized.supplemental_groups_policy = to_runtime_supplemental_groups_policy(
                    pod_sc.supplemental_groups_policy
                )
        synthesized.supplemental_groups.extend(self.runtime_helper.get_extra_supplemental_groups_for_pod(pod))


def to_runtime_supplemental_groups_policy(
    policy: str,
) -> runtimeapi.SupplementalGroupsPolicy.ValueType:
    """Convert the policy. Raise ValueError if the runtime does not know it."""
    if policy not in runtimeapi.SupplementalGroupsPolicy.DESCRIPTOR.values_by_name:
        raise ValueError(f"unsupported supplementalGroupsPolicy: {policy}")
    return runtimeapi.SupplementalGroupsPolicy.Value(policy)


def verify_run_as_non_root(pod: v1.Pod, container: v1.Container, uid: int | None, username: str) -> None:
    """Raise ValueError if runAsNonRoot is set and the container would, or might, run as root."""
    effective = securitycontext.determine_effective_security_context(pod, container)
    if not effective.run_as_non_root:
        return
    where = f'(pod: "{format.pod(pod)}", container: {container.name})'
    if effective.run_as_user is not None:
        if effective.run_as_user == 0:
            raise ValueError(f"container's runAsUser breaks non-root policy {where}")
        return
    if uid is None:
        if username:
            raise ValueError(
                f"container has runAsNonRoot and image has non-numeric user ({username[:MAX_SHOWN_USER_LENGTH]}),"
                f" cannot verify user is non-root {where}"
            )
        return
    if uid == 0:
        raise ValueError(f"container has runAsNonRoot and image will run as root {where}")
    if not 0 <= uid <= _MAX_USER_ID:
        raise ValueError(
            f"container has runAsNonRoot and image has an invalid user id ({uid})."
            f" (Must be 1-({_MAX_USER_ID})): must be between 0 and {_MAX_USER_ID}, inclusive {where}"
        )


def convert_to_runtime_security_context(
    security_context: v1.SecurityContext,
) -> runtimeapi.LinuxContainerSecurityContext:
    """Convert the fields that concern only the container."""
    sc = runtimeapi.LinuxContainerSecurityContext(
        capabilities=_convert_to_runtime_capabilities(security_context.capabilities),
        selinux_options=convert_to_runtime_selinux_option(security_context.se_linux_options),
        privileged=bool(security_context.privileged),
        readonly_rootfs=bool(security_context.read_only_root_filesystem),
    )
    if security_context.run_as_user is not None:
        sc.run_as_user.CopyFrom(runtimeapi.Int64Value(value=security_context.run_as_user))
    if security_context.run_as_group is not None:
        sc.run_as_group.CopyFrom(runtimeapi.Int64Value(value=security_context.run_as_group))
    return sc


def convert_to_runtime_selinux_option(opts: v1.SELinuxOptions | None) -> runtimeapi.SELinuxOption | None:
    """Convert the SELinux label, or return None if there is none."""
    if opts is None:
        return None
    return runtimeapi.SELinuxOption(user=opts.user, role=opts.role, type=opts.type, level=opts.level)


def _convert_to_runtime_capabilities(opts: v1.Capabilities | None) -> runtimeapi.Capability | None:
    if opts is None:
        return None
    return runtimeapi.Capability(add_capabilities=opts.add, drop_capabilities=opts.drop)
