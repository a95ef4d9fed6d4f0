"""Validate a new pod, and report all errors at once with their fields.

Go has all validation in one file of ten thousand lines. Here it is split by topic: names.py, volumes.py, claims.py,
env.py, containers.py, resources.py, security.py and scheduling.py. What only the API server validates (updates, other
kinds, Windows options, ephemeral containers) is left out.

Go: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pkg.api.core import v1
from pkg.apimachinery.api import validation as apimachineryvalidation
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.apis.meta.v1 import validation as unversionedvalidation
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.apis.core import helper
from pkg.apis.core import pods as podshelper
from pkg.apis.core.validation.containers import PodContext, validate_containers, validate_init_containers
from pkg.apis.core.validation.names import (
    Errors,
    invalid_each,
    validate_dns1123_label,
    validate_dns1123_subdomain,
    validate_dns1123_subdomain_with_underscore,
    validate_qualified_name,
)
from pkg.apis.core.validation.options import PodValidationOptions
from pkg.apis.core.validation.resources import (
    validate_container_resource_requirements,
    validate_pod_resource_claims,
    validate_pod_resources,
)
from pkg.apis.core.validation.scheduling import (
    validate_affinity,
    validate_tolerations,
    validate_topology_spread_constraints,
)
from pkg.apis.core.validation.security import (
    validate_app_armor_annotations_and_fields_match_on_create,
    validate_app_armor_pod_annotations,
    validate_linux,
    validate_pod_spec_security_context,
    validate_seccomp_annotations_and_fields,
    validate_seccomp_pod_annotations,
)
from pkg.apis.core.validation.volumes import validate_volumes

MAX_DNS_NAMESERVERS = 3
MAX_DNS_SEARCH_PATHS = 32
MAX_DNS_SEARCH_LIST_CHARS = 2048

_MAX_INT32 = 2**31 - 1
_MAX_HOSTNAME_OVERRIDE = 64
_TOLERATIONS_ANNOTATION_KEY = "scheduler.alpha.kubernetes.io/tolerations"
_RESTART_POLICIES = [v1.RESTART_POLICY_ALWAYS, v1.RESTART_POLICY_ON_FAILURE, v1.RESTART_POLICY_NEVER]
_DNS_POLICIES = [v1.DNS_CLUSTER_FIRST_WITH_HOST_NET, v1.DNS_CLUSTER_FIRST, v1.DNS_DEFAULT, v1.DNS_NONE]
_PREEMPTION_POLICIES = [v1.PREEMPT_LOWER_PRIORITY, v1.PREEMPT_NEVER]
_OPERATING_SYSTEMS = [v1.LINUX, v1.WINDOWS]


def validate_pod_create(pod: v1.Pod, opts: PodValidationOptions) -> Errors:
    """Return all errors in a pod whose defaults are set."""
    errs = _validate_pod_metadata_and_spec(pod, opts)
    path = field.Path("spec")
    if pod.spec.ephemeral_containers:
        errs.append(field.forbidden(path.child("ephemeralContainers"), "cannot be set on create"))
    if pod.spec.node_name and pod.spec.scheduling_gates:
        detail = "cannot be set until all schedulingGates have been cleared"
        errs.append(field.forbidden(path.child("nodeName"), detail))
    errs += validate_seccomp_annotations_and_fields(pod, path)
    return errs + validate_app_armor_annotations_and_fields_match_on_create(pod, path)


def _validate_pod_metadata_and_spec(pod: v1.Pod, opts: PodValidationOptions) -> Errors:
    meta_path, spec_path = field.Path("metadata"), field.Path("spec")
    errs = validate_object_meta(pod.metadata, meta_path)
    errs += _validate_pod_specific_annotations(pod, meta_path.child("annotations"), opts)
    errs += validate_pod_spec(pod.spec, pod.metadata, spec_path, opts)
    if pod.spec.service_account_name:
        return errs
    for i, volume in enumerate(pod.spec.volumes):
        for j, source in enumerate(volume.projected.sources if volume.projected is not None else []):
            if source.service_account_token is not None:
                path = spec_path.child("volumes").index(i).child("projected", "sources").index(j)
                detail = "must not be specified when serviceAccountName is not set"
                errs.append(field.forbidden(path.child("serviceAccountToken"), detail))
    return errs


def validate_object_meta(meta: metav1.ObjectMeta, fld_path: field.Path) -> Errors:
    """Validate the metadata of a namespaced object whose name is a DNS subdomain."""
    errs: Errors = []
    errs += apimachineryvalidation.validate_object_meta(
        meta, True, apimachineryvalidation.name_is_dns_subdomain, fld_path
    )
    for i, finalizer in enumerate(meta.finalizers):
        if "/" not in finalizer and not helper.is_standard_finalizer_name(finalizer):
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            errs.append(field.invalid(fld_path.child("finalizers").index(i), finalizer, detail))
    return errs


def _validate_pod_specific_annotations(pod: v1.Pod, fld_path: field.Path, opts: PodValidationOptions) -> Errors:
    errs: Errors = []
    annotations = pod.metadata.annotations
    mirror = annotations.get(v1.MIRROR_POD_ANNOTATION_KEY)
    if mirror is not None and not pod.spec.node_name:
        detail = "must set spec.nodeName if mirror pod annotation is set"
        errs.append(field.invalid(fld_path.key(v1.MIRROR_POD_ANNOTATION_KEY), mirror, detail))
    errs += _validate_tolerations_in_pod_annotations(annotations, fld_path, opts)
    if not opts.allow_invalid_pod_deletion_cost:
        try:
            helper.get_deletion_cost_from_pod_annotations(annotations)
        except ValueError:
            path = fld_path.key(helper.POD_DELETION_COST)
            errs.append(field.invalid(path, annotations[helper.POD_DELETION_COST], "must be a 32bit integer"))
    errs += validate_seccomp_pod_annotations(annotations, fld_path)
    return errs + validate_app_armor_pod_annotations(annotations, pod.spec, fld_path)


def _validate_tolerations_in_pod_annotations(
    annotations: Mapping[str, str], fld_path: field.Path, opts: PodValidationOptions
) -> Errors:
    text = annotations.get(_TOLERATIONS_ANNOTATION_KEY)
    if not text:
        return []
    try:
        tolerations = codec.decode_json(text, list[v1.Toleration])
    except codec.DecodeError as err:
        return [field.invalid(fld_path, _TOLERATIONS_ANNOTATION_KEY, str(err))]
    return validate_tolerations(tolerations, fld_path.child(_TOLERATIONS_ANNOTATION_KEY), opts)


def validate_pod_spec(
    spec: v1.PodSpec, pod_meta: metav1.ObjectMeta, fld_path: field.Path, opts: PodValidationOptions
) -> Errors:
    errs: Errors = []
    if spec.termination_grace_period_seconds is None:
        errs.append(field.required(fld_path.child("terminationGracePeriodSeconds"), ""))
    volumes, volume_errs = validate_volumes(spec.volumes, pod_meta, fld_path.child("volumes"))
    errs += volume_errs
    errs += validate_pod_resource_claims(pod_meta, spec.resource_claims, fld_path.child("resourceClaims"))
    pod = PodContext(
        volumes=volumes,
        claim_names={claim.name for claim in spec.resource_claims if claim.name},
        grace_period=spec.termination_grace_period_seconds,
        restart_policy=spec.restart_policy,
        os=spec.os.name if spec.os is not None else "",
        host_users=spec.host_users is not False,
        opts=opts,
    )
    errs += validate_containers(spec.containers, pod, fld_path.child("containers"))
    init_path = fld_path.child("initContainers")
    errs += validate_init_containers(spec.init_containers, spec.containers, pod, init_path)
    if opts.pod_level_resources_enabled:
        errs += validate_pod_resources(spec, pod.claim_names, fld_path)
    errs += _validate_pod_host_network_deps(spec, fld_path)
    errs += _validate_one_of(spec.restart_policy, _RESTART_POLICIES, fld_path.child("restartPolicy"))
    errs += _validate_one_of(spec.dns_policy, _DNS_POLICIES, fld_path.child("dnsPolicy"))
    errs += unversionedvalidation.validate_labels(spec.node_selector, fld_path.child("nodeSelector"))
    errs += validate_pod_spec_security_context(spec, fld_path.child("securityContext"))
    errs += validate_affinity(spec.affinity, fld_path.child("affinity"))
    errs += _validate_pod_dns_config(spec, fld_path.child("dnsConfig"), opts)
    errs += _validate_readiness_gates(spec.readiness_gates, fld_path.child("readinessGates"))
    errs += _validate_scheduling_gates(spec.scheduling_gates, fld_path.child("schedulingGates"))
    constraints_path = fld_path.child("topologySpreadConstraints")
    errs += validate_topology_spread_constraints(spec.topology_spread_constraints, constraints_path, opts)
    errs += _validate_host_users(spec, fld_path, opts)
    errs += _validate_hostname_override(spec, fld_path.child("hostnameOverride"))
    errs += _validate_names(spec, fld_path)
    errs += validate_tolerations(spec.tolerations, fld_path.child("tolerations"), opts)
    errs += _validate_host_aliases(spec.host_aliases, fld_path.child("hostAliases"), opts)
    errs += _validate_limits(spec, fld_path)
    errs += _validate_os(spec, fld_path)
    return errs + _validate_file_key_ref_volumes(spec, fld_path)


def _validate_one_of(value: str, supported: list[str], fld_path: field.Path) -> Errors:
    if not value:
        return [field.required(fld_path, "")]
    return [] if value in supported else [field.not_supported(fld_path, value, supported)]


def _validate_names(spec: v1.PodSpec, fld_path: field.Path) -> Errors:
    errs: Errors = []
    for child, name in (
        ("serviceAccountName", spec.service_account_name),
        ("nodeName", spec.node_name),
        ("priorityClassName", spec.priority_class_name),
    ):
        if name:
            messages = apimachineryvalidation.name_is_dns_subdomain(name, False)
            errs += invalid_each(fld_path.child(child), name, messages)
    if spec.runtime_class_name is not None:
        errs += validate_dns1123_subdomain(spec.runtime_class_name, fld_path.child("runtimeClassName"))
    if spec.hostname:
        errs += validate_dns1123_label(spec.hostname, fld_path.child("hostname"))
    if spec.subdomain:
        errs += validate_dns1123_label(spec.subdomain, fld_path.child("subdomain"))
    if spec.scheduling_group is not None:
        path = fld_path.child("schedulingGroup", "podGroupName")
        group = spec.scheduling_group.pod_group_name
        if group is None:
            errs.append(field.invalid(path, "", "must specify one of: `podGroupName`"))
        else:
            errs += validate_dns1123_subdomain(group, path)
    return errs


def _validate_limits(spec: v1.PodSpec, fld_path: field.Path) -> Errors:
    errs: Errors = []
    seconds = spec.active_deadline_seconds
    if seconds is not None and not 1 <= seconds <= _MAX_INT32:
        detail = validation.inclusive_range_error(1, _MAX_INT32)
        errs.append(field.invalid(fld_path.child("activeDeadlineSeconds"), seconds, detail))
    if spec.preemption_policy is not None:
        path = fld_path.child("preemptionPolicy")
        errs += _validate_one_of(spec.preemption_policy, _PREEMPTION_POLICIES, path)
    if spec.overhead:
        overhead = v1.ResourceRequirements(limits=spec.overhead)
        errs += validate_container_resource_requirements(overhead, frozenset(), fld_path.child("overhead"))
    return errs


def _validate_os(spec: v1.PodSpec, fld_path: field.Path) -> Errors:
    if spec.os is None:
        return []
    path = fld_path.child("os")
    if not spec.os.name:
        return [field.required(path.child("name"), "")]
    if spec.os.name not in _OPERATING_SYSTEMS:
        return [field.not_supported(path, spec.os.name, _OPERATING_SYSTEMS)]
    return validate_linux(spec, fld_path) if spec.os.name == v1.LINUX else []


def _validate_pod_host_network_deps(spec: v1.PodSpec, fld_path: field.Path) -> Errors:
    errs: Errors = []
    if not spec.host_network:
        return errs
    for i, container in enumerate(spec.containers):
        for j, port in enumerate(container.ports):
            if port.host_port and port.host_port != port.container_port:
                path = fld_path.child("containers").index(i).child("ports").index(j).child("hostPort")
                detail = "must match `containerPort` when `hostNetwork` is true"
                errs.append(field.invalid(path, port.host_port, detail))
    return errs


def _validate_host_users(spec: v1.PodSpec, fld_path: field.Path, opts: PodValidationOptions) -> Errors:
    """Require that a pod in its own user namespace neither shares the host's other namespaces nor uses raw devices."""
    if spec.host_users is not False:
        return []
    detail = "when `hostUsers` is false"
    errs: Errors = []
    if spec.host_network and not opts.allow_user_namespaces_host_network_support:
        errs.append(field.forbidden(fld_path.child("hostNetwork"), detail))
    if spec.host_pid:
        errs.append(field.forbidden(fld_path.child("hostPID"), detail))
    if spec.host_ipc:
        errs.append(field.forbidden(fld_path.child("hostIPC"), detail))
    for container, path in podshelper.containers_with_path(spec, fld_path):
        if container.volume_devices:
            errs.append(field.forbidden(path.child("volumeDevices"), detail))
    return errs


def _validate_hostname_override(spec: v1.PodSpec, fld_path: field.Path) -> Errors:
    name = spec.hostname_override
    if name is None:
        return []
    errs: Errors = []
    if spec.set_hostname_as_fqdn:
        errs.append(field.forbidden(fld_path, "may not be specified when setHostnameAsFQDN is true"))
    if spec.host_network:
        errs.append(field.forbidden(fld_path, "may not be specified when hostNetwork is true"))
    if len(name) > _MAX_HOSTNAME_OVERRIDE:
        errs.append(field.too_long(fld_path, "", _MAX_HOSTNAME_OVERRIDE))
    return errs + validate_dns1123_subdomain(name, fld_path)


def _validate_pod_dns_config(spec: v1.PodSpec, fld_path: field.Path, opts: PodValidationOptions) -> Errors:
    config = spec.dns_config
    if spec.dns_policy == v1.DNS_NONE:
        if config is None:
            return [field.required(fld_path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.nameservers:
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [field.required(fld_path.child("nameservers"), detail)]
    if config is None:
        return []
    errs: Errors = []
    path = fld_path.child("nameservers")
    if len(config.nameservers) > MAX_DNS_NAMESERVERS:
        detail = f"must not have more than {MAX_DNS_NAMESERVERS} nameservers"
        errs.append(field.invalid(path, config.nameservers, detail))
    for i, server in enumerate(config.nameservers):
        errs += _validate_ip(path.index(i), server, opts)
    errs += _validate_dns_searches(config.searches, fld_path.child("searches"))
    for i, option in enumerate(config.options):
        if not option.name:
            errs.append(field.required(fld_path.child("options").index(i), "must not be empty"))
    return errs


def _validate_dns_searches(searches: Sequence[str], fld_path: field.Path) -> Errors:
    errs: Errors = []
    if len(searches) > MAX_DNS_SEARCH_PATHS:
        detail = f"must not have more than {MAX_DNS_SEARCH_PATHS} search paths"
        errs.append(field.invalid(fld_path, list(searches), detail))
    if len(" ".join(searches)) > MAX_DNS_SEARCH_LIST_CHARS:
        limit = f"{MAX_DNS_SEARCH_LIST_CHARS} characters (including spaces)"
        detail = f"must not have more than {limit} in the search list"
        errs.append(field.invalid(fld_path, list(searches), detail))
    for i, search in enumerate(searches):
        if search != ".":
            errs += validate_dns1123_subdomain_with_underscore(search.removesuffix("."), fld_path.index(i))
    return errs


def _validate_ip(fld_path: field.Path, value: str, opts: PodValidationOptions) -> Errors:
    return validation.is_valid_ip_for_legacy_field(fld_path, value, opts.strict_ip_validation, [])


def _validate_readiness_gates(gates: Sequence[v1.PodReadinessGate], fld_path: field.Path) -> Errors:
    errs: Errors = []
    for i, gate in enumerate(gates):
        errs += validate_qualified_name(gate.condition_type, fld_path.index(i).child("conditionType"))
    return errs


def _validate_scheduling_gates(gates: Sequence[v1.PodSchedulingGate], fld_path: field.Path) -> Errors:
    errs: Errors = []
    seen: set[str] = set()
    for i, gate in enumerate(gates):
        errs += validate_qualified_name(gate.name, fld_path.index(i))
        if gate.name in seen:
            errs.append(field.duplicate(fld_path.index(i), gate.name))
        seen.add(gate.name)
    return errs


def _validate_host_aliases(aliases: Sequence[v1.HostAlias], fld_path: field.Path, opts: PodValidationOptions) -> Errors:
    errs: Errors = []
    for i, alias in enumerate(aliases):
        errs += _validate_ip(fld_path.index(i).child("ip"), alias.ip, opts)
        for j, hostname in enumerate(alias.hostnames):
            errs += validate_dns1123_subdomain(hostname, fld_path.index(i).child("hostnames").index(j))
    return errs


def _validate_file_key_ref_volumes(spec: v1.PodSpec, fld_path: field.Path) -> Errors:
    """Require that variables are read only from files of emptyDir volumes."""
    errs: Errors = []
    volumes = {volume.name: volume for volume in spec.volumes}
    for container, path in podshelper.containers_with_path(spec, fld_path):
        for i, env in enumerate(container.env):
            if env.value_from is None or env.value_from.file_key_ref is None:
                continue
            name = env.value_from.file_key_ref.volume_name
            name_path = path.child("env").index(i).child("valueFrom", "fileKeyRef", "volumeName")
            if name not in volumes:
                errs.append(field.not_found(name_path, name))
            elif volumes[name].empty_dir is None:
                errs.append(field.invalid(name_path, name, "referenced volume must be of type emptyDir"))
    return errs
