"""Admit writes before they are stored, with those admission plugins of upstream that matter to a kubelet.

Go: plugin/pkg/admission/{noderestriction,nodetaint,serviceaccount,priority,defaulttolerationseconds,
storage/persistentvolume/resize,runtimeclass,podresize}, and
k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kubelet import apis as kubeletapis
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.runtime import codec

from . import certificates, errors, references, registry, resize
from .authorization import node_name
from .interfaces import CREATE, DELETE, UPDATE, Object, Request, Store
from .storage_strategies import quantity

_TOLERATION_SECONDS = 300
_PRIORITIES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
_IMMORTAL = ("default", "kube-system", "kube-public")
_LEASE_NAMESPACE = "kube-node-lease"
_TOKEN_SECONDS = 3607
_TOKEN_VOLUME = "kube-api-access-"
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_RESTRICTED_LABEL_NAMESPACE = "node-restriction.kubernetes.io"


@dataclass(frozen=True)
class Attempt:
    """Describe a write for the plugins."""

    request: Request
    operation: str
    new: Object | None
    old: Object | None
    store: Store

    @property
    def name(self) -> str:
        """Return the object's name, or the prefix of its name if the server will choose the name."""
        metadata = (self.new or self.old or {}).get("metadata") or {}
        return self.request.name or metadata.get("name") or metadata.get("generateName") or "Unknown"

    @property
    def object(self) -> Object:
        """Return the new object. The write must not be a deletion."""
        assert self.new is not None
        return self.new

    def is_for(self, resource: str, *operations: str, subresource: str = "") -> bool:
        request = self.request
        return (request.resource, request.subresource) == (resource, subresource) and self.operation in operations

    def refuse(self, why: str) -> errors.ApiError:
        return errors.forbidden(self.request.resource, self.request.group, self.name, why)


Plugin = Callable[[Attempt], None]


class Plugins:
    """Run the plugins in upstream's order. All methods are thread-safe.

    With `mount_tokens`, pods get a volume with the token of their service account, as upstream's do.
    """

    def __init__(self, store: Callable[[], Store], mount_tokens: bool = False) -> None:
        self._store = store
        self.mount_tokens = mount_tokens
        self._plugins: list[Plugin] = [
            namespace_lifecycle,
            self._service_account,
            node_restriction,
            taint_nodes,
            priority,
            default_toleration_seconds,
            persistent_volume_claim_resize,
            runtime_class,
            pod_resize_validator,
        ]

    def admit(self, request: Request, operation: str, new: Object | None, old: Object | None) -> Object | None:
        attempt = Attempt(request, operation, new, old, self._store())
        for plugin in self._plugins:
            plugin(attempt)
        return new

    def _service_account(self, attempt: Attempt) -> None:
        service_account(attempt, self.mount_tokens)


def namespace_lifecycle(attempt: Attempt) -> None:
    """Refuse creations in a missing or terminating namespace, and the deletion of a namespace that must stay."""
    request = attempt.request
    if request.resource == "namespaces":
        if attempt.is_for("namespaces", DELETE) and request.name in _IMMORTAL:
            raise attempt.refuse("this namespace may not be deleted")
        return
    if not request.namespace or attempt.operation != CREATE or request.resource.endswith("accessreviews"):
        return
    namespace = attempt.store.get("namespaces", request.namespace)
    if (namespace.get("status") or {}).get("phase") != "Terminating":
        return
    why = f"unable to create new content in namespace {request.namespace} because it is being terminated"
    error = attempt.refuse(why)
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {request.namespace} is being terminated",
        "field": "metadata.namespace",
    }
    error.details = {**(error.details or {}), "causes": [cause]}
    raise error


def service_account(attempt: Attempt, mount_token: bool) -> None:
    """Set the default service account of a pod, and add the account's pull secrets and, if wanted, its token."""
    if not attempt.is_for("pods", CREATE):
        return
    pod = attempt.object
    spec = pod.setdefault("spec", {})
    if references.is_mirror(pod):
        _check_mirror(attempt, spec)
        return
    name = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    try:
        account = attempt.store.get("serviceaccounts", name, attempt.request.namespace)
    except errors.ApiError as err:
        place = f"{attempt.request.namespace}/{name}"
        why = f'error looking up service account {place}: serviceaccount "{name}" not found'
        raise attempt.refuse(why) from err
    if mount_token and _wants_token(spec, account):
        _mount_token(pod)
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": each["name"]} for each in account["imagePullSecrets"]]


def _check_mirror(attempt: Attempt, spec: Object) -> None:
    if spec.get("serviceAccountName"):
        raise attempt.refuse("a mirror pod may not reference service accounts")
    if references.secret_names(attempt.object):
        raise attempt.refuse("a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or []:
        for source in (volume.get("projected") or {}).get("sources") or []:
            if source.get("serviceAccountToken"):
                raise attempt.refuse("a mirror pod may not use ServiceAccountToken volume projections")


def _wants_token(spec: Object, account: Object) -> bool:
    for holder in (spec, account):
        if (wish := holder.get("automountServiceAccountToken")) is not None:
            return bool(wish)
    return True


def _mount_token(pod: Object) -> None:
    spec = pod["spec"]
    volumes = spec.get("volumes") or []
    name = next((each["name"] for each in volumes if each.get("name", "").startswith(_TOKEN_VOLUME)), "")
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    without = [each for each in containers if not _mounts_token(each)]
    mounted = name or registry.generate_name(_TOKEN_VOLUME)
    for container in without:
        mount = {"name": mounted, "readOnly": True, "mountPath": _TOKEN_PATH}
        container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
    if without and not name:
        spec["volumes"] = [*volumes, _token_volume(mounted)]


def _token_volume(name: str) -> Object:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}


def _mounts_token(container: Mapping[str, Any]) -> bool:
    return any(mount.get("mountPath") == _TOKEN_PATH for mount in container.get("volumeMounts") or [])


def priority(attempt: Attempt) -> None:
    """Set a pod's priority from the name of its priority class."""
    if attempt.is_for("pods", UPDATE):
        old, spec = (attempt.old or {}).get("spec") or {}, attempt.object.setdefault("spec", {})
        for key in ("priority", "preemptionPolicy"):
            if spec.get(key) is None and old.get(key) is not None:
                spec[key] = old[key]
    if not attempt.is_for("pods", CREATE):
        return
    spec = attempt.object.setdefault("spec", {})
    found = _priority_class(attempt, spec.get("priorityClassName") or "")
    value, policy = found["value"], found.get("preemptionPolicy") or "PreemptLowerPriority"
    if spec.get("priority") not in (None, value):
        raise attempt.refuse(
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
    if spec.get("preemptionPolicy") not in (None, policy):
        raise attempt.refuse(
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
    spec["priority"], spec["preemptionPolicy"] = value, policy


def _priority_class(attempt: Attempt, name: str) -> Mapping[str, Any]:
    """Return the value and policy of a priority class.

    The two classes of the system always exist. Others exist only if the server stores priority classes.
    """
    if not name:
        return {"value": 0}
    if name in _PRIORITIES:
        return {"value": _PRIORITIES[name]}
    try:
        return attempt.store.get("priorityclasses", name)
    except errors.ApiError as err:
        raise attempt.refuse(f"no PriorityClass with name {name} was found") from err


def default_toleration_seconds(attempt: Attempt) -> None:
    """Let a pod tolerate for five minutes that its node is not ready or not reachable."""
    if not attempt.is_for("pods", CREATE, UPDATE):
        return
    spec = attempt.object.setdefault("spec", {})
    present = spec.get("tolerations") or []
    added = []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates_eviction(each, key) for each in present):
            toleration = {"key": key, "operator": "Exists", "effect": "NoExecute"}
            added.append({**toleration, "tolerationSeconds": _TOLERATION_SECONDS})
    if added:
        spec["tolerations"] = [*present, *added]


def _tolerates_eviction(toleration: Mapping[str, Any], key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


def runtime_class(attempt: Attempt) -> None:
    """Add the overhead of the runtime class to the pod."""
    if not attempt.is_for("pods", CREATE):
        return
    spec = attempt.object.setdefault("spec", {})
    name = spec.get("runtimeClassName")
    if not name:
        if spec.get("overhead"):
            raise attempt.refuse("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
        return
    try:
        found = attempt.store.get("runtimeclasses", name)
    except errors.ApiError as err:
        raise attempt.refuse(f'pod rejected: RuntimeClass "{name}" not found') from err
    overhead = (found.get("overhead") or {}).get("podFixed")
    if overhead:
        spec["overhead"] = dict(overhead)


def persistent_volume_claim_resize(attempt: Attempt) -> None:
    """Allow a claim to grow only if it is bound and its storage class permits expansion."""
    if not attempt.is_for("persistentvolumeclaims", UPDATE) or attempt.old is None:
        return
    if _claimed(attempt.object).cmp(_claimed(attempt.old)) <= 0:
        return
    if (attempt.old.get("status") or {}).get("phase") != "Bound":
        raise attempt.refuse("Only bound persistent volume claims can be expanded")
    if not _may_grow(attempt):
        raise attempt.refuse(
            "only dynamically provisioned pvc can be resized and "
            "the storageclass that provisions the pvc must support resize"
        )


def _claimed(claim: Object) -> Quantity:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return quantity(requests.get("storage"))


def _may_grow(attempt: Attempt) -> bool:
    name = attempt.object["spec"].get("storageClassName")
    try:
        return bool(name) and bool(attempt.store.get("storageclasses", name).get("allowVolumeExpansion"))
    except errors.ApiError:
        return False


def taint_nodes(attempt: Attempt) -> None:
    """Add the not-ready taint to a new node. The node lifecycle controller removes it."""
    if not attempt.is_for("nodes", CREATE):
        return
    spec = attempt.object.setdefault("spec", {})
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    present = spec.get("taints") or []
    if not any(each.get("key") == taint["key"] and each.get("effect") == taint["effect"] for each in present):
        spec["taints"] = [*present, taint]


def pod_resize_validator(attempt: Attempt) -> None:
    """Refuse a resize that the pod's node can never grant."""
    if not attempt.is_for("pods", UPDATE, subresource="resize") or attempt.old is None:
        return
    spec = attempt.object["spec"]
    node_name = spec.get("nodeName")
    if not node_name or spec == attempt.old["spec"]:
        return
    try:
        node = attempt.store.get("nodes", node_name)
    except errors.ApiError as err:
        raise attempt.refuse(f'node "{node_name}" not found') from err
    labels = (node.get("metadata") or {}).get("labels") or {}
    os_name = labels.get("kubernetes.io/os", "linux")
    if os_name != "linux":
        why = f'pod resize is only supported on linux nodes, node "{node_name}" is "{os_name}"'
        raise _resize_error(attempt, why, "UnsupportedPlatform")
    pod = codec.convert(attempt.object, v1.Pod)
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    if why := resize.exceeds_allocatable(pod, allocatable):
        raise _resize_error(attempt, why, "NodeCapacity")


def _resize_error(attempt: Attempt, why: str, reason: str) -> errors.ApiError:
    error = attempt.refuse(why)
    error.details = {**(error.details or {}), "causes": [{"reason": reason}]}
    return error


def node_restriction(attempt: Attempt) -> None:
    """Restrict a node's writes to its own objects."""
    if attempt.operation not in (CREATE, UPDATE, DELETE):
        return
    node = node_name(attempt.request.user)
    if node is None:
        return
    if not node:
        raise attempt.refuse(f'could not determine node from user "{attempt.request.user.name}"')
    request = attempt.request
    match request.group, request.resource:
        case "", "pods":
            _restrict_pod(node, attempt)
        case "", "nodes":
            _restrict_node(node, attempt)
        case "", "persistentvolumeclaims":
            _restrict_claim(node, attempt)
        case "", "serviceaccounts":
            _restrict_token(node, attempt)
        case "coordination.k8s.io", "leases":
            _restrict_lease(node, attempt)
        case "storage.k8s.io", "csinodes":
            if _object_name(attempt) != node:
                raise attempt.refuse("can only access CSINode with the same name as the requesting node")
        case "resource.k8s.io", "resourceslices":
            _restrict_slice(node, attempt)
        case "certificates.k8s.io", "certificatesigningrequests":
            _restrict_request(node, attempt)


def _restrict_pod(node: str, attempt: Attempt) -> None:
    match attempt.request.subresource, attempt.operation:
        case "", "CREATE":
            _restrict_mirror_pod(node, attempt)
        case "", "DELETE":
            if _node_of_stored_pod(attempt) != node:
                raise attempt.refuse(f'node "{node}" can only delete pods with spec.nodeName set to itself')
        case "", _:
            why = f'unexpected operation "{attempt.operation}", node "{node}" can only create and delete mirror pods'
            raise attempt.refuse(why)
        case "status", "UPDATE":
            _restrict_pod_status(node, attempt)
        case "eviction", "CREATE":
            if _node_of_stored_pod(attempt) != node:
                raise attempt.refuse(f"node {node} can only evict pods with spec.nodeName set to itself")
        case "status" | "eviction", _:
            raise attempt.refuse(f'unexpected operation "{attempt.operation}"')
        case subresource, _:
            why = f"unexpected pod subresource \"{subresource}\", only 'status' and 'eviction' are allowed"
            raise attempt.refuse(why)


def _node_of_stored_pod(attempt: Attempt) -> str:
    pod = attempt.store.get("pods", attempt.name, attempt.request.namespace)
    return str((pod.get("spec") or {}).get("nodeName", ""))


def _restrict_mirror_pod(node: str, attempt: Attempt) -> None:
    pod = attempt.object
    if not references.is_mirror(pod):
        annotation = references.MIRROR_ANNOTATION
        raise attempt.refuse(f'pod does not have "{annotation}" annotation, node "{node}" can only create mirror pods')
    if (pod.get("spec") or {}).get("nodeName") != node:
        raise attempt.refuse(f'node "{node}" can only create pods with spec.nodeName set to itself')
    _restrict_owner(node, attempt, pod["metadata"].get("ownerReferences") or [])
    if resource := references.api_references(pod):
        raise attempt.refuse(f'node "{node}" can not create pods that reference {resource}')


def _restrict_owner(node: str, attempt: Attempt, owners: list[Object]) -> None:
    """Check that the node is the only owner of its mirror pod."""
    only = f'node "{node}" can only create pods with'
    if len(owners) > 1:
        raise attempt.refuse(f"{only} a single owner reference set to itself")
    owner = owners[0] if owners else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        raise attempt.refuse(f"{only} an owner reference set to itself")
    if not owner.get("controller"):
        raise attempt.refuse(f"{only} a controller owner reference set to itself")
    if owner.get("blockOwnerDeletion"):
        raise attempt.refuse(f'node "{node}" must not set blockOwnerDeletion on an owner reference')
    uid = attempt.store.get("nodes", node)["metadata"]["uid"]
    if owner.get("uid") != uid:
        raise attempt.refuse(f"node {node} UID mismatch: expected {owner.get('uid', '')} got {uid}")


def _restrict_pod_status(node: str, attempt: Attempt) -> None:
    new, old = attempt.object, attempt.old or {}
    if (old.get("spec") or {}).get("nodeName") != node:
        raise attempt.refuse(f'node "{node}" can only update pod status for pods with spec.nodeName set to itself')
    if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        raise attempt.refuse(f'node "{node}" cannot update labels through pod status')
    old_status, new_status = old.get("status") or {}, new.get("status") or {}
    if (old_status.get("resourceClaimStatuses") or []) != (new_status.get("resourceClaimStatuses") or []):
        raise attempt.refuse(f'node "{node}" cannot update resource claim statues')
    if old_status.get("extendedResourceClaimStatus") != new_status.get("extendedResourceClaimStatus"):
        raise attempt.refuse(f'node "{node}" cannot update extended resource claim status')


def _restrict_node(node: str, attempt: Attempt) -> None:
    name = _object_name(attempt)
    if name != node:
        raise attempt.refuse(f'node "{node}" is not allowed to modify node "{name}"')
    if attempt.operation == CREATE:
        _restrict_new_node(node, attempt)
    elif attempt.operation == UPDATE:
        _restrict_changed_node(node, attempt)


def _restrict_new_node(node: str, attempt: Attempt) -> None:
    if (attempt.object.get("spec") or {}).get("configSource") is not None:
        raise attempt.refuse(f'node "{node}" is not allowed to create pods with a non-nil configSource')
    labels = attempt.object["metadata"].get("labels") or {}
    if forbidden := sorted(filter(_is_forbidden_label, labels)):
        raise attempt.refuse(f'node "{node}" is not allowed to set the following labels: {", ".join(forbidden)}')


def _restrict_changed_node(node: str, attempt: Attempt) -> None:
    new, old = attempt.object, attempt.old or {}
    new_spec, old_spec = new.get("spec") or {}, old.get("spec") or {}
    source = new_spec.get("configSource")
    if source is not None and source != old_spec.get("configSource"):
        raise attempt.refuse(f'node "{node}" is not allowed to update configSource to a new non-nil configSource')
    if (new_spec.get("taints") or []) != (old_spec.get("taints") or []):
        raise attempt.refuse(f'node "{node}" is not allowed to modify taints')
    if (new["metadata"].get("ownerReferences") or []) != (old["metadata"].get("ownerReferences") or []):
        raise attempt.refuse(f'node "{node}" is not allowed to modify ownerReferences')
    new_labels, old_labels = new["metadata"].get("labels") or {}, old["metadata"].get("labels") or {}
    changed = {key for key in {*new_labels, *old_labels} if new_labels.get(key) != old_labels.get(key)}
    if forbidden := sorted(filter(_is_forbidden_label, changed)):
        raise attempt.refuse(f"is not allowed to modify labels: {', '.join(forbidden)}")


def _is_forbidden_label(label: str) -> bool:
    """Report whether a node must not set this label on its own object."""
    namespace = label.partition("/")[0] if "/" in label else ""
    if _is_within(namespace, _RESTRICTED_LABEL_NAMESPACE):
        return True
    of_kubernetes = _is_within(namespace, "kubernetes.io") or _is_within(namespace, "k8s.io")
    return of_kubernetes and not kubeletapis.is_kubelet_label(label)


def _is_within(namespace: str, domain: str) -> bool:
    return namespace == domain or namespace.endswith(f".{domain}")


def _restrict_claim(node: str, attempt: Attempt) -> None:
    if attempt.request.subresource != "status":
        raise attempt.refuse("may only update PVC status")
    if attempt.operation != UPDATE:
        raise attempt.refuse(f'unexpected operation "{attempt.operation}"')
    if _fixed_part(attempt.object) != _fixed_part(attempt.old or {}):
        what = "fields other than status.quantity and status.conditions"
        raise attempt.refuse(f'node "{node}" is not allowed to update {what}')


def _fixed_part(claim: Object) -> Object:
    """Return a claim without the fields that a node may report."""
    reported = ("capacity", "conditions", "allocatedResourceStatuses", "allocatedResources")
    unimportant = ("resourceVersion", "managedFields")
    metadata = {key: value for key, value in (claim.get("metadata") or {}).items() if key not in unimportant}
    status = {key: value for key, value in (claim.get("status") or {}).items() if key not in reported}
    return {**claim, "metadata": metadata, "status": status}


def _restrict_lease(node: str, attempt: Attempt) -> None:
    if attempt.request.namespace != _LEASE_NAMESPACE:
        raise attempt.refuse(f'can only access leases in the "{_LEASE_NAMESPACE}" system namespace')
    if _object_name(attempt) != node:
        raise attempt.refuse("can only access node lease with the same name as the requesting node")


def _restrict_slice(node: str, attempt: Attempt) -> None:
    written = attempt.old if attempt.operation == DELETE else attempt.new
    if attempt.operation != UPDATE and ((written or {}).get("spec") or {}).get("nodeName") != node:
        verb = attempt.operation.lower()
        raise attempt.refuse(f"can only {verb} ResourceSlice with the same NodeName as the requesting node")


def _object_name(attempt: Attempt) -> str:
    """Return the name of the written object. On creation the object has the name, not the path."""
    written = (attempt.new if attempt.operation == CREATE else attempt.old) or {}
    return str((written.get("metadata") or {}).get("name") or attempt.request.name)


def _restrict_token(node: str, attempt: Attempt) -> None:
    if attempt.operation != CREATE or attempt.request.subresource != "token":
        return
    spec = attempt.object.get("spec") or {}
    reference = spec.get("boundObjectRef") or {}
    if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod") or not reference.get("name"):
        raise attempt.refuse("node requested token not bound to a pod")
    if not reference.get("uid"):
        raise attempt.refuse("node requested token with a pod binding without a uid")
    pod = attempt.store.get("pods", reference["name"], attempt.request.namespace)
    if reference["uid"] != pod["metadata"]["uid"]:
        raise attempt.refuse(
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
    if (pod.get("spec") or {}).get("nodeName") != node:
        raise attempt.refuse("node requested token bound to a pod scheduled on a different node")
    _restrict_audience(attempt, pod, spec.get("audiences") or [])


def _restrict_audience(attempt: Attempt, pod: Object, audiences: list[str]) -> None:
    """Check that the node requests a token only for an audience that a volume of the pod names."""
    if len(audiences) > 1:
        raise attempt.refuse("node may only request 0 or 1 audiences")
    audience = audiences[0] if audiences else ""
    if audience not in _audiences(attempt.store, pod):
        user = attempt.request.user.name
        raise attempt.refuse(
            f'audience "{audience}" not found in pod spec volume, '
            f"{user} is not authorized to request tokens for this audience"
        )


def _audiences(store: Store, pod: Object) -> set[str]:
    """Return the audiences of the tokens in the pod's volumes. "" stands for the API server."""
    found = set()
    for volume in references.volumes(pod):
        for source in (volume.get("projected") or {}).get("sources") or []:
            if "serviceAccountToken" in source:
                found.add(source["serviceAccountToken"].get("audience", ""))
        if driver := _csi_driver(store, pod, volume):
            found |= {each.get("audience", "") for each in _token_requests(store, driver)}
    return found


def _token_requests(store: Store, driver: str) -> list[Object]:
    try:
        spec: Object = store.get("csidrivers", driver).get("spec") or {}
    except errors.ApiError:
        return []
    return spec.get("tokenRequests") or []


def _csi_driver(store: Store, pod: Object, volume: Mapping[str, Any]) -> str:
    """Return the name of the CSI driver of a pod's volume, whether the volume names the driver or a claim does."""
    if "csi" in volume:
        return str(volume["csi"].get("driver", ""))
    if "ephemeral" in volume:
        claim = f"{pod['metadata']['name']}-{volume['name']}"
    elif "persistentVolumeClaim" in volume:
        claim = volume["persistentVolumeClaim"].get("claimName", "")
    else:
        return ""
    try:
        bound = store.get("persistentvolumeclaims", claim, pod["metadata"]["namespace"])
        persistent = store.get("persistentvolumes", (bound.get("spec") or {}).get("volumeName", ""))
    except errors.ApiError:
        return ""
    return str(((persistent.get("spec") or {}).get("csi") or {}).get("driver", ""))


def _restrict_request(node: str, attempt: Attempt) -> None:
    """Check that a node requests kubelet certificates only for itself."""
    spec = (attempt.new or {}).get("spec") or {}
    kubelets = (certificates.SIGNER_KUBELET_CLIENT, certificates.SIGNER_KUBELET_SERVING)
    if attempt.operation != CREATE or spec.get("signerName") not in kubelets:
        return
    try:
        request = certificates.decode_request(spec.get("request", ""))
    except certificates.RequestError as err:
        raise attempt.refuse(f"unable to parse csr: {err}") from err
    if certificates.common_name(request.subject) != f"system:node:{node}":
        raise attempt.refuse(f"can only create a node CSR with CN=system:node:{node}")
