"""Handle the `resize` subresource of pods, which may change only parts of a pod.

Go: k8s.io/kubernetes/pkg/registry/core/pod/strategy.go (podResizeStrategy),
pkg/apis/core/validation/validation.go (ValidatePodResize), plugin/pkg/admission/podresize
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.validation import field
from pkg.apis.core.v1.helper import qos
from pkg.component_helpers import resource as resourcehelper

from . import references
from .interfaces import Object
from .strategies import Errors, restore

_LISTS = ("containers", "initContainers")
_RESIZABLE = ("cpu", "memory")
_SPEC = field.Path("spec")


def prepare(new: Object, old: Object) -> None:
    """Restore everything that a resize does not change.

    Additional and missing containers stay as they are, because the validation reports them.
    """
    if any(len(new["spec"].get(name) or []) != len(old["spec"].get(name) or []) for name in _LISTS):
        return
    wanted = {name: _keep(new["spec"].get(name) or [], old["spec"].get(name) or []) for name in _LISTS}
    resources = new["spec"].get("resources")
    new["spec"] = dict(old["spec"])
    for name, containers in wanted.items():
        if containers:
            new["spec"][name] = containers
    if resources is None:
        new["spec"].pop("resources", None)
    else:
        new["spec"]["resources"] = resources
    restore(new, old, "status")
    restore(
        new["metadata"], old["metadata"], "deletionTimestamp", "ownerReferences", "labels", "annotations", "finalizers"
    )


def _keep(new: list[Object], old: list[Object]) -> list[Object]:
    merged = []
    for mine, before in zip(new, old, strict=True):
        if mine.get("name") != before.get("name"):
            return new
        container = {**before, "resources": mine.get("resources") or {}}
        container.pop("resizePolicy", None)
        if mine.get("resizePolicy"):
            container["resizePolicy"] = mine["resizePolicy"]
        merged.append(container)
    return merged


def validate(new: v1.Pod, old: v1.Pod, old_object: Object) -> Errors:
    """Return upstream's errors of a resize."""
    if references.is_mirror(old_object):
        return [field.forbidden(field.Path(""), "static pods cannot be resized")]
    errs: Errors = []
    # The new pod's status does not count, because it still has the class of the pod before the resize.
    before_class = old.status.qos_class or qos.compute_pod_qos(old)
    if qos.compute_pod_qos(new) != before_class:
        detail = "Pod QOS Class may not change as a result of resizing"
        errs.append(field.invalid(_SPEC, new.status.qos_class, detail))
    running = [c for c in old.status.container_statuses if c.state.running is not None]
    if running and running[0].resources is None:
        errs.append(field.forbidden(_SPEC, "Pod running on node without support for resize"))
    errs += _validate_pod_level(new.spec, old.spec)
    ordering = _validate_ordering(new.spec, old.spec)
    if ordering:
        return errs + ordering
    for name, mine, before in (
        ("initContainers", new.spec.init_containers, old.spec.init_containers),
        ("containers", new.spec.containers, old.spec.containers),
    ):
        for i, (container, earlier) in enumerate(zip(mine, before, strict=True)):
            path = _SPEC.child(name).index(i)
            errs += _validate_removals(container.resources, earlier.resources, path.child("resources"), "resource")
            errs += _validate_container(container, earlier, path, is_init=name == "initContainers")
    return errs


def _validate_pod_level(new: v1.PodSpec, old: v1.PodSpec) -> Errors:
    if old.resources is None or new.resources is None:
        if old.resources is not None:
            return [field.forbidden(_SPEC.child("resources"), "pod-level resources cannot be removed")]
        return []
    errs = _validate_removals(new.resources, old.resources, _SPEC.child("resources"), "pod-level resource")
    if not codec.semantic_equal(_fixed(new.resources), _fixed(old.resources)):
        errs.append(field.forbidden(_SPEC, "only cpu and memory resources are mutable at pod-level"))
    return errs


def _validate_removals(
    new: v1.ResourceRequirements, old: v1.ResourceRequirements, path: field.Path, what: str
) -> Errors:
    return [
        field.forbidden(path.child(name), f"{what} {name} cannot be removed")
        for name, mine, before in (
            ("requests", new.requests, old.requests),
            ("limits", new.limits, old.limits),
        )
        if before.keys() - mine.keys()
    ]


def _validate_container(new: v1.Container, old: v1.Container, path: field.Path, is_init: bool) -> Errors:
    errs: Errors = []
    fixed = v1.deepcopy(new)
    fixed.resources = old.resources
    if not codec.semantic_equal(fixed, old) or not codec.semantic_equal(_fixed(new.resources), _fixed(old.resources)):
        detail = "only cpu and memory resources for init or sidecar containers are mutable"
        if is_init:
            errs.append(field.forbidden(path, detail))
        else:
            errs.append(field.forbidden(_SPEC, "only cpu and memory resources are mutable"))
    sidecar = new.restart_policy == v1.CONTAINER_RESTART_POLICY_ALWAYS
    if is_init and not sidecar and not codec.semantic_equal(new, old):
        detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
        restarts = [p for p in new.resize_policy if p.restart_policy == v1.RESTART_CONTAINER]
        errs += [field.forbidden(path, detail) for _ in restarts]
    return errs


def _fixed(resources: v1.ResourceRequirements) -> v1.ResourceRequirements:
    """Return the resources that cannot change."""
    return v1.ResourceRequirements(
        limits={name: amount for name, amount in resources.limits.items() if name not in _RESIZABLE},
        requests={name: amount for name, amount in resources.requests.items() if name not in _RESIZABLE},
        claims=resources.claims,
    )


def _validate_ordering(new: v1.PodSpec, old: v1.PodSpec) -> Errors:
    errs: Errors = []
    for name, mine, before in (
        ("containers", new.containers, old.containers),
        ("initContainers", new.init_containers, old.init_containers),
    ):
        if len(mine) != len(before):
            errs.append(field.forbidden(_SPEC.child(name), f"{name} may not be added or removed on resize"))
            continue
        for i, (container, earlier) in enumerate(zip(mine, before, strict=True)):
            if container.name != earlier.name:
                path = _SPEC.child(name).index(i).child("name")
                errs.append(field.forbidden(path, f"{name} may not be renamed or reordered on resize"))
    return errs


def exceeds_allocatable(pod: v1.Pod, allocatable: dict[str, str]) -> str:
    """Return the reason why the node can never grant the resize, or "" if it can."""
    zero = resource.new_quantity(0)
    node = {name: resource.parse_quantity(text) for name, text in allocatable.items()}
    requests = resourcehelper.pod_requests(pod, resourcehelper.PodResourcesOptions())
    cpu, memory = requests.get("cpu", zero), requests.get("memory", zero)
    faults = []
    if cpu.cmp(node.get("cpu", zero)) > 0:
        has = node.get("cpu", zero).milli_value()
        faults.append(f"cpu, requested: {cpu.milli_value()}, allocatable: {has}")
    if memory.cmp(node.get("memory", zero)) > 0:
        has = node.get("memory", zero).value()
        faults.append(f"memory, requested: {memory.value()}, allocatable: {has}")
    return f"node didn't have enough allocatable resources: {'; '.join(faults)}" if faults else ""
