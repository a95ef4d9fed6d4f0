"""Validate the security contexts of pods and containers, and the annotations that preceded them.

Go: pkg/apis/core/validation/validation.go

DIVERGES (platform): the kubelet does not validate the contents of windowsOptions in a static pod without an operating
system.
Go: pkg/apis/core/validation/validation.go, validateWindowsSecurityContextOptions: the Go kubelet refuses a pod with
invalid ones.
Why: containers never run on Windows here, and a runtime on Linux ignores these options.
Test: validation_test.py:test_windows_options_are_not_looked_into
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pkg.api.core import v1
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.apis.core import pods as podshelper
from pkg.apis.core.validation.names import Errors, invalid_each, validate_local_descending_path
from pkg.component_helpers.node.util import sysctl as utilsysctl

_SYSCTL_MAX_LENGTH = 253
_SYSCTL_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL = re.compile(rf"({_SYSCTL_SEGMENT}[\./])*{_SYSCTL_SEGMENT}")
_MAX_LOCALHOST_PROFILE_LENGTH = 4095  # The value is PATH_MAX - 1.

_PROFILE_TYPES = [
    v1.SECCOMP_PROFILE_TYPE_LOCALHOST,
    v1.SECCOMP_PROFILE_TYPE_RUNTIME_DEFAULT,
    v1.SECCOMP_PROFILE_TYPE_UNCONFINED,
]  # fmt: skip
_PROC_MOUNTS = [v1.DEFAULT_PROC_MOUNT, v1.UNMASKED_PROC_MOUNT]
_FS_GROUP_CHANGE_POLICIES = [v1.FS_GROUP_CHANGE_ALWAYS, v1.FS_GROUP_CHANGE_ON_ROOT_MISMATCH]
_SUPPLEMENTAL_GROUPS_POLICIES = ["Merge", "Strict"]
_SE_LINUX_CHANGE_POLICIES = ["MountOption", "Recursive"]


def validate_security_context(sc: v1.SecurityContext | None, fld_path: field.Path, host_users: bool) -> Errors:
    """Validate the security context of a container; whether privileged ones are allowed is the cluster's decision."""
    if sc is None:
        return []
    errs = _validate_ids(sc.run_as_user, sc.run_as_group, fld_path)
    if sc.proc_mount is not None:
        path = fld_path.child("procMount")
        if sc.proc_mount not in _PROC_MOUNTS:
            errs.append(field.not_supported(path, sc.proc_mount, _PROC_MOUNTS))
        if host_users and sc.proc_mount == v1.UNMASKED_PROC_MOUNT:
            errs.append(field.invalid(path, sc.proc_mount, "`hostUsers` must be false to use `Unmasked`"))
    errs += _validate_seccomp_profile_field(sc.seccomp_profile, fld_path.child("seccompProfile"))
    if sc.allow_privilege_escalation is False:
        if sc.privileged:
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errs.append(field.invalid(fld_path, sc.allow_privilege_escalation, detail))
        if sc.capabilities is not None and "CAP_SYS_ADMIN" in sc.capabilities.add:
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errs.append(field.invalid(fld_path, sc.allow_privilege_escalation, detail))
    return errs + _validate_app_armor_profile_field(sc.app_armor_profile, fld_path.child("appArmorProfile"))


def _validate_ids(user: int | None, group: int | None, fld_path: field.Path) -> Errors:
    errs: Errors = []
    if user is not None:
        errs += invalid_each(fld_path.child("runAsUser"), user, validation.is_valid_user_id(user))
    if group is not None:
        errs += invalid_each(fld_path.child("runAsGroup"), group, validation.is_valid_group_id(group))
    return errs


def validate_pod_spec_security_context(spec: v1.PodSpec, fld_path: field.Path) -> Errors:
    sc = spec.security_context
    if sc is None:
        return []
    errs: Errors = []
    if sc.fs_group is not None:
        errs += invalid_each(fld_path.child("fsGroup"), sc.fs_group, validation.is_valid_group_id(sc.fs_group))
    errs += _validate_ids(sc.run_as_user, sc.run_as_group, fld_path)
    for i, group in enumerate(sc.supplemental_groups):
        path = fld_path.child("supplementalGroups").index(i)
        errs += invalid_each(path, group, validation.is_valid_group_id(group))
    if spec.share_process_namespace and spec.host_pid:
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        errs.append(field.invalid(fld_path.child("shareProcessNamespace"), spec.share_process_namespace, detail))
    errs += _validate_sysctls(spec, sc, fld_path.child("sysctls"))
    errs += _validate_seccomp_profile_field(sc.seccomp_profile, fld_path.child("seccompProfile"))
    errs += _validate_app_armor_profile_field(sc.app_armor_profile, fld_path.child("appArmorProfile"))
    for name, value, supported in (
        ("fsGroupChangePolicy", sc.fs_group_change_policy, _FS_GROUP_CHANGE_POLICIES),
        ("supplementalGroupsPolicy", sc.supplemental_groups_policy, _SUPPLEMENTAL_GROUPS_POLICIES),
        ("seLinuxChangePolicy", sc.se_linux_change_policy, _SE_LINUX_CHANGE_POLICIES),
    ):
        if value is not None and value not in supported:
            errs.append(field.not_supported(fld_path.child(name), value, supported))
    return errs


def _validate_sysctls(spec: v1.PodSpec, sc: v1.PodSecurityContext, fld_path: field.Path) -> Errors:
    errs: Errors = []
    names: set[str] = set()
    for i, sysctl in enumerate(sc.sysctls):
        path = fld_path.index(i).child("name")
        if not sysctl.name:
            errs.append(field.required(path, ""))
        elif len(sysctl.name) > _SYSCTL_MAX_LENGTH or not _SYSCTL.fullmatch(sysctl.name):
            detail = f"must have at most {_SYSCTL_MAX_LENGTH} characters and match regex ^{_SYSCTL.pattern}$"
            errs.append(field.invalid(path, sysctl.name, detail))
        elif sysctl.name in names:
            errs.append(field.duplicate(path, sysctl.name))
        names.add(sysctl.name)
        namespace = utilsysctl.get_namespace(sysctl.name).namespace
        if spec.host_network and namespace == utilsysctl.NET_NAMESPACE:
            errs.append(field.invalid(path, sysctl.name, "may not be specified when 'hostNetwork' is true"))
        if spec.host_ipc and namespace == utilsysctl.IPC_NAMESPACE:
            errs.append(field.invalid(path, sysctl.name, "may not be specified when 'hostIPC' is true"))
    return errs


def _validate_seccomp_profile_field(profile: v1.SeccompProfile | None, fld_path: field.Path) -> Errors:
    if profile is None:
        return []
    errs: Errors = []
    if not profile.type:
        errs.append(field.required(fld_path.child("type"), "type is required when seccompProfile is set"))
    elif profile.type not in _PROFILE_TYPES:
        errs.append(field.not_supported(fld_path.child("type"), profile.type, _PROFILE_TYPES))
    path = fld_path.child("localhostProfile")
    if profile.type != v1.SECCOMP_PROFILE_TYPE_LOCALHOST:
        if profile.localhost_profile is not None:
            detail = "can only be set when seccomp type is Localhost"
            errs.append(field.invalid(path, profile.localhost_profile, detail))
    elif profile.localhost_profile is None:
        errs.append(field.required(path, "must be set when seccomp type is Localhost"))
    else:
        errs += validate_local_descending_path(profile.localhost_profile, path)
    return errs


def _validate_app_armor_profile_field(profile: v1.AppArmorProfile | None, fld_path: field.Path) -> Errors:
    if profile is None:
        return []
    if not profile.type:
        return [field.required(fld_path.child("type"), "type is required when appArmorProfile is set")]
    if profile.type not in _PROFILE_TYPES:
        return [field.not_supported(fld_path.child("type"), profile.type, _PROFILE_TYPES)]
    path, name = fld_path.child("localhostProfile"), profile.localhost_profile
    if profile.type != v1.APP_ARMOR_PROFILE_TYPE_LOCALHOST:
        if name is not None:
            return [field.invalid(path, name, "can only be set when AppArmor type is Localhost")]
        return []
    if not name:
        return [field.required(path, "must be set when AppArmor type is Localhost")]
    errs: Errors = []
    if name != name.strip():
        errs.append(field.invalid(path, name, "must not be padded with whitespace"))
    if len(name.encode()) > _MAX_LOCALHOST_PROFILE_LENGTH:
        errs.append(field.too_long(path, "", _MAX_LOCALHOST_PROFILE_LENGTH))
    return errs


def validate_seccomp_pod_annotations(annotations: Mapping[str, str], fld_path: field.Path) -> Errors:
    errs: Errors = []
    for key, profile in annotations.items():
        of_container = key.startswith(v1.SECCOMP_CONTAINER_ANNOTATION_KEY_PREFIX)
        if key == v1.SECCOMP_POD_ANNOTATION_KEY or of_container:
            errs += _validate_seccomp_profile(profile, fld_path.child(key))
    return errs


def _validate_seccomp_profile(profile: str, fld_path: field.Path) -> Errors:
    if profile in (
        v1.SECCOMP_PROFILE_RUNTIME_DEFAULT,
        v1.DEPRECATED_SECCOMP_PROFILE_DOCKER_DEFAULT,
        v1.SECCOMP_PROFILE_NAME_UNCONFINED,
    ):
        return []
    prefix = v1.SECCOMP_LOCALHOST_PROFILE_NAME_PREFIX
    if profile.startswith(prefix):
        return validate_local_descending_path(profile.removeprefix(prefix), fld_path)
    return [field.invalid(fld_path, profile, "must be a valid seccomp profile")]


def validate_app_armor_pod_annotations(
    annotations: Mapping[str, str], spec: v1.PodSpec, fld_path: field.Path
) -> Errors:
    errs: Errors = []
    names = {c.name for c, _ in podshelper.containers_with_path(spec, field.Path("spec"))}
    prefix = v1.DEPRECATED_APP_ARMOR_BETA_CONTAINER_ANNOTATION_KEY_PREFIX
    for key, profile in annotations.items():
        if not key.startswith(prefix):
            continue
        if key.removeprefix(prefix) not in names:
            errs.append(field.invalid(fld_path.key(key), key.removeprefix(prefix), "container not found"))
        if profile not in (
            "",
            v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_RUNTIME_DEFAULT,
            v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_NAME_UNCONFINED,
        ) and not profile.startswith(v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_NAME_PREFIX):
            detail = f'invalid AppArmor profile name: "{profile}"'
            errs.append(field.invalid(fld_path.key(key), profile, detail))
    return errs


def validate_seccomp_annotations_and_fields(pod: v1.Pod, spec_path: field.Path) -> Errors:
    """Require that the old annotation and the field have the same value if both are set."""
    errs: Errors = []
    annotations = pod.metadata.annotations
    sc = pod.spec.security_context
    if sc is not None and sc.seccomp_profile is not None:
        annotation = annotations.get(v1.SECCOMP_POD_ANNOTATION_KEY)
        path = spec_path.child("securityContext", "seccompProfile")
        errs += _validate_seccomp_match(annotation, sc.seccomp_profile, path)
    for container, path in podshelper.containers_with_path(pod.spec, spec_path):
        if container.security_context is None or container.security_context.seccomp_profile is None:
            continue
        annotation = annotations.get(v1.SECCOMP_CONTAINER_ANNOTATION_KEY_PREFIX + container.name)
        profile_path = path.child("securityContext", "seccompProfile")
        errs += _validate_seccomp_match(annotation, container.security_context.seccomp_profile, profile_path)
    return errs


def _validate_seccomp_match(annotation: str | None, profile: v1.SeccompProfile, fld_path: field.Path) -> Errors:
    if annotation is None:
        return []
    mismatch = [field.forbidden(fld_path.child("type"), "seccomp type in annotation and field must match")]
    match profile.type:
        case v1.SECCOMP_PROFILE_TYPE_UNCONFINED:
            return [] if annotation == v1.SECCOMP_PROFILE_NAME_UNCONFINED else mismatch
        case v1.SECCOMP_PROFILE_TYPE_RUNTIME_DEFAULT:
            same = (v1.SECCOMP_PROFILE_RUNTIME_DEFAULT, v1.DEPRECATED_SECCOMP_PROFILE_DOCKER_DEFAULT)
            return [] if annotation in same else mismatch
        case v1.SECCOMP_PROFILE_TYPE_LOCALHOST:
            prefix = v1.SECCOMP_LOCALHOST_PROFILE_NAME_PREFIX
            if not annotation.startswith(prefix):
                return mismatch
            if annotation.removeprefix(prefix) != profile.localhost_profile:
                detail = "seccomp profile in annotation and field must match"
                return [field.forbidden(fld_path.child("localhostProfile"), detail)]
    return []


def validate_app_armor_annotations_and_fields_match_on_create(pod: v1.Pod, spec_path: field.Path) -> Errors:
    """Require that the AppArmor annotation and the field agree, as for seccomp.

    The pod's profile applies to its containers without a profile.
    """
    if pod.spec.os is not None and pod.spec.os.name == "windows":
        return []
    errs: Errors = []
    of_pod = pod.spec.security_context.app_armor_profile if pod.spec.security_context is not None else None
    for container, path in podshelper.containers_with_path(pod.spec, spec_path):
        of_container = container.security_context.app_armor_profile if container.security_context else None
        profile = of_container or of_pod
        key = v1.DEPRECATED_APP_ARMOR_BETA_CONTAINER_ANNOTATION_KEY_PREFIX + container.name
        annotation = pod.metadata.annotations.get(key)
        if profile is not None and annotation is not None:
            errs += _validate_app_armor_match(annotation, profile, path.child("securityContext", "appArmorProfile"))
    return errs


def _validate_app_armor_match(annotation: str, profile: v1.AppArmorProfile, fld_path: field.Path) -> Errors:
    mismatch = [field.forbidden(fld_path.child("type"), "apparmor type in annotation and field must match")]
    match profile.type:
        case v1.APP_ARMOR_PROFILE_TYPE_UNCONFINED:
            return [] if annotation == v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_NAME_UNCONFINED else mismatch
        case v1.APP_ARMOR_PROFILE_TYPE_RUNTIME_DEFAULT:
            return [] if annotation == v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_RUNTIME_DEFAULT else mismatch
        case v1.APP_ARMOR_PROFILE_TYPE_LOCALHOST:
            prefix = v1.DEPRECATED_APP_ARMOR_BETA_PROFILE_NAME_PREFIX
            if not annotation.startswith(prefix):
                return mismatch
            if annotation.removeprefix(prefix) != profile.localhost_profile:
                detail = "apparmor profile in annotation and field must match"
                return [field.forbidden(fld_path.child("localhostProfile"), detail)]
    return []


def validate_linux(spec: v1.PodSpec, fld_path: field.Path) -> Errors:
    detail = "windows options cannot be set for a linux pod"
    errs: Errors = []
    if spec.security_context is not None and spec.security_context.windows_options is not None:
        errs.append(field.forbidden(fld_path.child("securityContext", "windowsOptions"), detail))
    for container, path in podshelper.containers_with_path(spec, fld_path):
        if container.security_context is not None and container.security_context.windows_options is not None:
            errs.append(field.forbidden(path.child("securityContext", "windowsOptions"), detail))
    return errs
