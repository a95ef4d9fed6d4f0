from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from framework.apiserver import certificates, errors
from framework.apiserver.admission import Plugins
from framework.apiserver.interfaces import CREATE, DELETE, UPDATE, Object, Request, UserInfo
from framework.apiserver.testing import FakeStore

NODE = UserInfo("system:node:n1", groups=("system:nodes", "system:authenticated"))
NAMELESS = UserInfo("system:node:", groups=("system:nodes",))
ADMIN = UserInfo("admin", groups=("system:masters",))

MIRROR = {"kubernetes.io/config.mirror": "hash"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid", "controller": True}
FORBIDDEN = 'pods "p" is forbidden: '
LEASES = "coordination.k8s.io/leases"
SLICES = "resource.k8s.io/resourceslices"
CSRS = "certificates.k8s.io/certificatesigningrequests"


def pod(name: str = "p", **changes: Any) -> Object:
    """Return a mirror pod as a node creates it, with changes of its spec, annotations, owners and labels."""
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": "pod-uid",
        "annotations": changes.pop("annotations", MIRROR),
        "ownerReferences": changes.pop("owners", [OWNER]),
    }
    if "labels" in changes:
        metadata["labels"] = changes.pop("labels")
    status = changes.pop("status", {})
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [], **changes}, "status": status}


def node(**changes: Any) -> Object:
    metadata: Object = {"name": "n1", "uid": "node-uid", "labels": changes.pop("labels", {})}
    metadata.update(changes.pop("metadata", {}))
    return {"metadata": metadata, "spec": changes}


@pytest.fixture
def store() -> FakeStore:
    store = FakeStore()
    for name, phase in (("ns", "Active"), ("kube-node-lease", "Active"), ("going", "Terminating")):
        store.add("namespaces", {"metadata": {"name": name}, "status": {"phase": phase}})
    store.add("nodes", node())
    store.add("pods", pod("mine", serviceAccountName="default"))
    projected = {"sources": [{"serviceAccountToken": {"audience": "vault"}}, {"serviceAccountToken": {}}]}
    volumes = [
        {"name": "a", "projected": projected},
        {"name": "b", "csi": {"driver": "d"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}},
    ]
    store.add("pods", pod("with-tokens", volumes=volumes))
    store.add("pods", pod("theirs", nodeName="n2"))
    account: Object = {"metadata": {"name": "default", "namespace": "ns"}, "imagePullSecrets": [{"name": "pull"}]}
    store.add("serviceaccounts", account)
    store.add("csidrivers", {"metadata": {"name": "d"}, "spec": {"tokenRequests": [{"audience": "storage"}]}})
    store.add("csidrivers", {"metadata": {"name": "e"}, "spec": {"tokenRequests": [{"audience": "claimed"}]}})
    claim: Object = {"metadata": {"name": "claim", "namespace": "ns"}, "spec": {"volumeName": "volume"}}
    store.add("persistentvolumeclaims", claim)
    store.add("persistentvolumes", {"metadata": {"name": "volume"}, "spec": {"csi": {"driver": "e"}}})
    store.add("priorityclasses", {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"})
    store.add("runtimeclasses", {"metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "1"}}})
    return store


def admit(
    store: FakeStore,
    operation: str,
    what: str,
    new: Object | None = None,
    old: Object | None = None,
    user: UserInfo = NODE,
    name: str | None = None,
    namespace: str | None = None,
    mount_tokens: bool = False,
) -> Object | None:
    """Admit a write of `what`, which is GROUP/RESOURCE or RESOURCE, optionally with :SUBRESOURCE."""
    what, _, subresource = what.partition(":")
    group, _, resource = what.rpartition("/")
    metadata = (new or old or {}).get("metadata") or {}
    request = Request(
        "",
        "",
        user=user,
        verb=operation.lower(),
        group=group,
        resource=resource,
        subresource=subresource,
        namespace=metadata.get("namespace", "") if namespace is None else namespace,
        name=metadata.get("name", "") if name is None else name,
    )
    return Plugins(lambda: store, mount_tokens).admit(request, operation, copy.deepcopy(new), old)


def refusal(store: FakeStore, *arguments: Any, **options: Any) -> str | None:
    try:
        admit(store, *arguments, **options)
    except errors.ApiError as err:
        assert err.code == 403
        return err.message
    return None


NOT_OWNED = 'node "n1" can only create pods with an owner reference set to itself'
CREATIONS: list[tuple[str, Object, str | None]] = [
    ("a mirror pod", pod(), None),
    (
        "not a mirror pod",
        pod(annotations={}),
        'pod does not have "kubernetes.io/config.mirror" annotation, node "n1" can only create mirror pods',
    ),
    ("of another node", pod(nodeName="n2"), 'node "n1" can only create pods with spec.nodeName set to itself'),
    ("without a node", pod(nodeName=""), 'node "n1" can only create pods with spec.nodeName set to itself'),
    ("no owner", pod(owners=[]), NOT_OWNED),
    (
        "two owners",
        pod(owners=[OWNER, OWNER]),
        'node "n1" can only create pods with a single owner reference set to itself',
    ),
    ("another owner", pod(owners=[{**OWNER, "name": "n2"}]), NOT_OWNED),
    ("another kind of owner", pod(owners=[{**OWNER, "kind": "Pod"}]), NOT_OWNED),
    (
        "an owner that is not a controller",
        pod(owners=[{**OWNER, "controller": False}]),
        'node "n1" can only create pods with a controller owner reference set to itself',
    ),
    (
        "an owner that blocks",
        pod(owners=[{**OWNER, "blockOwnerDeletion": True}]),
        'node "n1" must not set blockOwnerDeletion on an owner reference',
    ),
    (
        "an owner with another UID",
        pod(owners=[{**OWNER, "uid": "old"}]),
        "node n1 UID mismatch: expected old got node-uid",
    ),
    *[
        (
            f"with {name}",
            pod(volumes=[{"name": "v", **volume}]),
            f'node "n1" can not create pods that reference {what}',
        )
        for name, volume, what in (
            ("a config map", {"configMap": {"name": "m"}}, "configmaps"),
            ("a claim", {"persistentVolumeClaim": {"claimName": "c"}}, "persistentvolumeclaims"),
            ("an ephemeral claim", {"ephemeral": {}}, "persistentvolumeclaims (via ephemeral volumes)"),
            ("a CSI volume", {"csi": {"driver": "d"}}, "csidrivers (via CSI volumes)"),
            (
                "a bundle",
                {"projected": {"sources": [{"downwardAPI": {}}, {"clusterTrustBundle": {}}]}},
                "clustertrustbundles",
            ),
        )
    ],
    (
        "with a claim for devices",
        pod(resourceClaims=[{"name": "r"}]),
        'node "n1" can not create pods that reference resourceclaims',
    ),
    (
        "with local volumes",
        pod(volumes=[{"name": "a", "hostPath": {}}, {"name": "b", "projected": {"sources": [{"downwardAPI": {}}]}}]),
        None,
    ),
    ("with an account", pod(serviceAccountName="x"), "a mirror pod may not reference service accounts"),
    ("with a secret", pod(imagePullSecrets=[{"name": "s"}]), "a mirror pod may not reference secrets"),
    (
        "with a token",
        pod(volumes=[{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]),
        "a mirror pod may not use ServiceAccountToken volume projections",
    ),
]


@pytest.mark.parametrize(("new", "error"), [row[1:] for row in CREATIONS], ids=[row[0] for row in CREATIONS])
def test_pods_that_a_node_creates(store: FakeStore, new: Object, error: str | None) -> None:
    assert refusal(store, CREATE, "pods", new) == (FORBIDDEN + error if error else None)


PODS: list[tuple[str, str, Object | None, Object | None, str | None]] = [
    (DELETE, "pods", None, pod("mine"), None),
    (DELETE, "pods", None, pod("theirs"), 'node "n1" can only delete pods with spec.nodeName set to itself'),
    (
        UPDATE,
        "pods",
        pod("mine"),
        pod("mine"),
        'unexpected operation "UPDATE", node "n1" can only create and delete mirror pods',
    ),
    (UPDATE, "pods:status", pod("mine", status={"phase": "Running"}), pod("mine"), None),
    (
        UPDATE,
        "pods:status",
        pod("theirs"),
        pod("theirs", nodeName="n2"),
        'node "n1" can only update pod status for pods with spec.nodeName set to itself',
    ),
    (
        UPDATE,
        "pods:status",
        pod("mine", labels={"a": "b"}),
        pod("mine"),
        'node "n1" cannot update labels through pod status',
    ),
    (
        UPDATE,
        "pods:status",
        pod("mine", status={"resourceClaimStatuses": [{"name": "r"}]}),
        pod("mine"),
        'node "n1" cannot update resource claim statues',
    ),
    (
        UPDATE,
        "pods:status",
        pod("mine", status={"extendedResourceClaimStatus": {"resourceClaimName": "r"}}),
        pod("mine"),
        'node "n1" cannot update extended resource claim status',
    ),
    (CREATE, "pods:status", pod("mine"), None, 'unexpected operation "CREATE"'),
    (CREATE, "pods:eviction", {"metadata": {"name": "mine", "namespace": "ns"}}, None, None),
    (
        CREATE,
        "pods:eviction",
        {"metadata": {"name": "theirs", "namespace": "ns"}},
        None,
        "node n1 can only evict pods with spec.nodeName set to itself",
    ),
    (
        CREATE,
        "pods:binding",
        {"metadata": {"name": "mine", "namespace": "ns"}},
        None,
        "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed",
    ),
]


@pytest.mark.parametrize(("operation", "what", "new", "old", "error"), PODS)
def test_what_a_node_does_to_pods(
    store: FakeStore, operation: str, what: str, new: Object | None, old: Object | None, error: str | None
) -> None:
    name = ((new or old) or {})["metadata"]["name"]
    expected = f'pods "{name}" is forbidden: {error}' if error else None
    assert refusal(store, operation, what, new, old) == expected


LABELS: list[tuple[str, bool]] = [
    ("example.com/role", True),
    ("plain", True),
    ("kubernetes.io/hostname", True),
    ("topology.kubernetes.io/zone", True),
    ("node.kubernetes.io/instance-type", True),
    ("kubelet.kubernetes.io/any", True),
    ("sub.node.kubernetes.io/any", True),
    ("node-role.kubernetes.io/control-plane", False),
    ("node-restriction.kubernetes.io/any", False),
    ("sub.node-restriction.kubernetes.io/any", False),
    ("kubernetes.io/other", False),
    ("k8s.io/other", False),
    ("my.k8s.io/other", False),
    ("notkubernetes.io/other", True),
]


@pytest.mark.parametrize(("label", "allowed"), LABELS)
def test_labels_of_a_node(store: FakeStore, label: str, allowed: bool) -> None:
    new = node(labels={label: "x"})
    on_creation = f'nodes "n1" is forbidden: node "n1" is not allowed to set the following labels: {label}'
    on_update = f'nodes "n1" is forbidden: is not allowed to modify labels: {label}'
    assert refusal(store, CREATE, "nodes", new) == (None if allowed else on_creation)
    assert refusal(store, UPDATE, "nodes", new, node()) == (None if allowed else on_update)
    assert refusal(store, UPDATE, "nodes:status", node(), new) == (None if allowed else on_update)
    assert refusal(store, UPDATE, "nodes", new, new) is None


TAINT = {"key": "k", "effect": "NoSchedule"}
NODES: list[tuple[str, Object | None, Object | None, str | None]] = [
    (CREATE, node(taints=[TAINT]), None, None),
    (CREATE, {**node(), "metadata": {"name": "n2"}}, None, 'node "n1" is not allowed to modify node "n2"'),
    (
        CREATE,
        node(configSource={}),
        None,
        'node "n1" is not allowed to create pods with a non-nil configSource',
    ),
    (UPDATE, node(unschedulable=True), node(), None),
    (UPDATE, node(taints=[TAINT]), node(taints=[TAINT]), None),
    (UPDATE, node(taints=[TAINT]), node(), 'node "n1" is not allowed to modify taints'),
    (UPDATE, node(), node(taints=[TAINT]), 'node "n1" is not allowed to modify taints'),
    (
        UPDATE,
        node(metadata={"ownerReferences": [OWNER]}),
        node(),
        'node "n1" is not allowed to modify ownerReferences',
    ),
    (
        UPDATE,
        node(configSource={"a": "b"}),
        node(),
        'node "n1" is not allowed to update configSource to a new non-nil configSource',
    ),
    (UPDATE, node(), node(configSource={"a": "b"}), None),
]


@pytest.mark.parametrize(("operation", "new", "old", "error"), NODES)
def test_what_a_node_does_to_nodes(
    store: FakeStore, operation: str, new: Object, old: Object | None, error: str | None
) -> None:
    name = new["metadata"]["name"]
    expected = f'nodes "{name}" is forbidden: {error}' if error else None
    assert refusal(store, operation, "nodes", new, old) == expected
    if operation == UPDATE:
        assert refusal(store, operation, "nodes:status", new, old) == expected


OTHER_LEASE = "can only access node lease with the same name as the requesting node"
OTHER_CSI_NODE = "can only access CSINode with the same name as the requesting node"
CLAIM: Object = {"metadata": {"name": "c", "namespace": "ns", "resourceVersion": "1"}, "spec": {"a": 1}, "status": {}}
OTHERS: list[tuple[str, str, Object, Object | None, str | None]] = [
    (CREATE, LEASES, {"metadata": {"name": "n1", "namespace": "kube-node-lease"}}, None, None),
    (CREATE, LEASES, {"metadata": {"name": "n2", "namespace": "kube-node-lease"}}, None, OTHER_LEASE),
    (UPDATE, LEASES, {"metadata": {"name": "n2", "namespace": "kube-node-lease"}}, {}, OTHER_LEASE),
    (
        UPDATE,
        LEASES,
        {"metadata": {"name": "n1", "namespace": "ns"}},
        {},
        'can only access leases in the "kube-node-lease" system namespace',
    ),
    (CREATE, "storage.k8s.io/csinodes", {"metadata": {"name": "n1"}}, None, None),
    (CREATE, "storage.k8s.io/csinodes", {"metadata": {"name": "n2"}}, None, OTHER_CSI_NODE),
    (UPDATE, "storage.k8s.io/csinodes", {"metadata": {"name": "n2"}}, {}, OTHER_CSI_NODE),
    (UPDATE, "persistentvolumeclaims", CLAIM, CLAIM, "may only update PVC status"),
    (UPDATE, "persistentvolumeclaims:status", {**CLAIM, "status": {"capacity": {"storage": "1"}}}, CLAIM, None),
    (
        UPDATE,
        "persistentvolumeclaims:status",
        {**CLAIM, "spec": {"a": 2}},
        CLAIM,
        'node "n1" is not allowed to update fields other than status.quantity and status.conditions',
    ),
    (CREATE, "persistentvolumeclaims:status", CLAIM, None, 'unexpected operation "CREATE"'),
    (CREATE, "events", {"metadata": {"name": "e", "namespace": "ns"}}, None, None),
    (CREATE, SLICES, {"metadata": {"name": "s"}, "spec": {"nodeName": "n1"}}, None, None),
    (
        CREATE,
        SLICES,
        {"metadata": {"name": "s"}, "spec": {"nodeName": "n2"}},
        None,
        "can only create ResourceSlice with the same NodeName as the requesting node",
    ),
    (
        DELETE,
        SLICES,
        {},
        {"metadata": {"name": "s"}, "spec": {"nodeName": "n2"}},
        "can only delete ResourceSlice with the same NodeName as the requesting node",
    ),
]


@pytest.mark.parametrize(("operation", "what", "new", "old", "error"), OTHERS)
def test_what_a_node_does_to_others(
    store: FakeStore, operation: str, what: str, new: Object, old: Object | None, error: str | None
) -> None:
    found = refusal(store, operation, what, new, old)
    assert (found or "").partition(" is forbidden: ")[2] == (error or "")


def reference(**changes: str) -> Object:
    return {"kind": "Pod", "apiVersion": "v1", "name": "mine", "uid": "pod-uid", **changes}


UNBOUND = "node requested token not bound to a pod"
TOKENS: list[tuple[Object, str | None]] = [
    ({"boundObjectRef": reference(name="with-tokens"), "audiences": ["vault"]}, None),
    ({"boundObjectRef": reference(name="with-tokens")}, None),
    ({"boundObjectRef": reference(name="with-tokens"), "audiences": ["storage"]}, None),
    ({"boundObjectRef": reference(name="with-tokens"), "audiences": ["claimed"]}, None),
    (
        {"boundObjectRef": reference(name="with-tokens"), "audiences": ["else"]},
        'audience "else" not found in pod spec volume, '
        "system:node:n1 is not authorized to request tokens for this audience",
    ),
    (
        {"boundObjectRef": reference(name="with-tokens"), "audiences": ["vault", "storage"]},
        "node may only request 0 or 1 audiences",
    ),
    ({}, UNBOUND),
    ({"boundObjectRef": reference(kind="Secret")}, UNBOUND),
    ({"boundObjectRef": reference(name="")}, UNBOUND),
    ({"boundObjectRef": reference(uid="")}, "node requested token with a pod binding without a uid"),
    (
        {"boundObjectRef": reference(uid="old")},
        "the UID in the bound object reference (old) does not match the UID in record. "
        "The object might have been deleted and then recreated",
    ),
    ({"boundObjectRef": reference(name="theirs")}, "node requested token bound to a pod scheduled on a different node"),
]


@pytest.mark.parametrize(("spec", "error"), TOKENS)
def test_tokens_that_a_node_asks_for(store: FakeStore, spec: Object, error: str | None) -> None:
    found = refusal(store, CREATE, "serviceaccounts:token", {"spec": spec}, name="default", namespace="ns")
    assert found == (f'serviceaccounts "default" is forbidden: {error}' if error else None)


@pytest.mark.parametrize(
    ("user", "signer", "error"),
    [
        ("system:node:n1", certificates.SIGNER_KUBELET_CLIENT, None),
        ("system:node:n1", certificates.SIGNER_KUBELET_SERVING, None),
        (
            "system:node:n2",
            certificates.SIGNER_KUBELET_CLIENT,
            "can only create a node CSR with CN=system:node:n1",
        ),
        ("ann", certificates.SIGNER_KUBELET_SERVING, "can only create a node CSR with CN=system:node:n1"),
        ("ann", certificates.SIGNER_CLIENT, None),
    ],
)
def test_certificates_that_a_node_asks_for(store: FakeStore, user: str, signer: str, error: str | None) -> None:
    request = base64.b64encode(certificates.make_request(user, ["system:nodes"])[0]).decode()
    found = refusal(
        store, CREATE, CSRS, {"metadata": {"name": "c"}, "spec": {"request": request, "signerName": signer}}
    )
    resource = "certificatesigningrequests.certificates.k8s.io"
    assert found == (f'{resource} "c" is forbidden: {error}' if error else None)


def test_a_request_for_a_certificate_that_cannot_be_read(store: FakeStore) -> None:
    spec = {"request": "AAAA", "signerName": certificates.SIGNER_KUBELET_CLIENT}
    found = refusal(store, CREATE, CSRS, {"metadata": {"generateName": "csr-"}, "spec": spec})
    assert found is not None and '"csr-" is forbidden: unable to parse csr: PEM block' in found


def test_who_is_no_node_is_not_restricted(store: FakeStore) -> None:
    assert refusal(store, CREATE, "nodes", node(labels={"k8s.io/x": ""}), user=ADMIN) is None
    assert refusal(store, UPDATE, "pods", pod("mine"), pod("mine"), user=ADMIN) is None
    assert refusal(store, CREATE, "nodes", node(), user=NAMELESS) == (
        'nodes "n1" is forbidden: could not determine node from user "system:node:"'
    )


def plain(**spec: Any) -> Object:
    return {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [{"name": "c"}], **spec}}


def admitted(store: FakeStore, new: Object, **options: Any) -> Object:
    found = admit(store, CREATE, "pods", new, user=ADMIN, **options)
    assert found is not None
    spec: Object = found["spec"]
    return spec


def test_what_a_pod_is_given(store: FakeStore) -> None:
    spec = admitted(store, plain())
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert spec["tolerations"] == [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    assert "volumes" not in spec and "overhead" not in spec


def test_what_a_mirror_pod_is_given(store: FakeStore) -> None:
    every = {"operator": "Exists", "effect": "NoExecute"}
    spec = admitted(store, pod(tolerations=[every], priorityClassName="system-node-critical", priority=2000001000))
    assert "serviceAccountName" not in spec and "imagePullSecrets" not in spec
    assert spec["tolerations"] == [every]
    assert spec["priority"] == 2000001000


@pytest.mark.parametrize(
    ("tolerations", "added"),
    [
        ([], ["not-ready", "unreachable"]),
        ([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}], ["unreachable"]),
        ([{"key": "node.kubernetes.io/not-ready"}], ["unreachable"]),
        ([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}], ["not-ready", "unreachable"]),
        ([{"operator": "Exists"}], []),
    ],
)
def test_tolerations(store: FakeStore, tolerations: list[Object], added: list[str]) -> None:
    spec = admitted(store, plain(tolerations=tolerations))
    assert spec.get("tolerations", [])[len(tolerations) :] == [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in added
    ]


PRIORITIES: list[tuple[Object, tuple[int, str] | str]] = [
    ({"priorityClassName": "system-node-critical"}, (2000001000, "PreemptLowerPriority")),
    ({"priorityClassName": "system-cluster-critical"}, (2000000000, "PreemptLowerPriority")),
    ({"priorityClassName": "high"}, (7, "Never")),
    ({"priorityClassName": "high", "priority": 7, "preemptionPolicy": "Never"}, (7, "Never")),
    ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
    (
        {"priority": 5},
        "the integer value of priority (5) must not be provided in pod spec; "
        "priority admission controller computed 0 from the given PriorityClass name",
    ),
    (
        {"preemptionPolicy": "Never"},
        "the string value of PreemptionPolicy (Never) must not be provided in pod spec; "
        "priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
    ),
]


@pytest.mark.parametrize(("spec", "expected"), PRIORITIES)
def test_priorities(store: FakeStore, spec: Object, expected: tuple[int, str] | str) -> None:
    if isinstance(expected, str):
        assert refusal(store, CREATE, "pods", plain(**spec), user=ADMIN) == FORBIDDEN + expected
        return
    found = admitted(store, plain(**spec))
    assert (found["priority"], found["preemptionPolicy"]) == expected


def test_an_update_keeps_the_priority(store: FakeStore) -> None:
    old = plain(priority=7, preemptionPolicy="Never")
    found = admit(store, UPDATE, "pods", plain(), old, user=ADMIN)
    assert found is not None and found["spec"]["priority"] == 7 and found["spec"]["preemptionPolicy"] == "Never"


def test_runtime_classes(store: FakeStore) -> None:
    assert admitted(store, plain(runtimeClassName="vm"))["overhead"] == {"cpu": "1"}
    assert refusal(store, CREATE, "pods", plain(runtimeClassName="none"), user=ADMIN) == (
        FORBIDDEN + 'pod rejected: RuntimeClass "none" not found'
    )
    assert refusal(store, CREATE, "pods", plain(overhead={"cpu": "1"}), user=ADMIN) == (
        FORBIDDEN + "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    )


def test_an_account_that_is_not_there(store: FakeStore) -> None:
    assert refusal(store, CREATE, "pods", plain(serviceAccountName="none"), user=ADMIN) == (
        FORBIDDEN + 'error looking up service account ns/none: serviceaccount "none" not found'
    )


@pytest.mark.parametrize(
    ("pod_wish", "account_wish", "mounted"),
    [(None, None, True), (False, True, False), (True, False, True), (None, False, False)],
)
def test_tokens_are_mounted(store: FakeStore, pod_wish: bool | None, account_wish: bool | None, mounted: bool) -> None:
    account = store.get("serviceaccounts", "default", "ns")
    store.add("serviceaccounts", {**account, "automountServiceAccountToken": account_wish})
    spec = admitted(store, plain(automountServiceAccountToken=pod_wish), mount_tokens=True)
    assert bool(spec.get("volumes")) == mounted
    mounts = [mount["mountPath"] for container in spec["containers"] for mount in container.get("volumeMounts", [])]
    assert mounts == (["/var/run/secrets/kubernetes.io/serviceaccount"] if mounted else [])


def test_token_mount_of_the_pods_own(store: FakeStore) -> None:
    own = {"name": "own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    containers = [{"name": "a", "volumeMounts": [own]}, {"name": "b"}]
    spec = admitted(store, plain(containers=containers, volumes=[{"name": "own", "emptyDir": {}}]), mount_tokens=True)
    assert spec["containers"][0]["volumeMounts"] == [own]
    (mount,) = spec["containers"][1]["volumeMounts"]
    assert mount["name"].startswith("kube-api-access-") and mount["readOnly"]
    assert [each["name"] for each in spec["volumes"]] == ["own", mount["name"]]

    alone = admitted(store, plain(containers=[containers[0]], volumes=[]), mount_tokens=True)
    assert alone["volumes"] == []


def test_token_volume_that_is_there_is_mounted(store: FakeStore) -> None:
    volumes = [{"name": "kube-api-access-mine", "emptyDir": {}}]
    spec = admitted(store, plain(containers=[{"name": "a"}], volumes=volumes), mount_tokens=True)
    assert [mount["name"] for mount in spec["containers"][0]["volumeMounts"]] == ["kube-api-access-mine"]
    assert spec["volumes"] == volumes


def test_a_new_node_is_tainted(store: FakeStore) -> None:
    not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    for present in ([], [TAINT]):
        found = admit(store, CREATE, "nodes", node(taints=present))
        assert found is not None and found["spec"]["taints"] == [*present, not_ready]
    found = admit(store, CREATE, "nodes", node(taints=[not_ready]))
    assert found is not None and found["spec"]["taints"] == [not_ready]


@pytest.mark.parametrize(
    ("operation", "what", "obj", "error"),
    [
        (CREATE, "configmaps", {"metadata": {"name": "c", "namespace": "ns"}}, None),
        (
            CREATE,
            "configmaps",
            {"metadata": {"name": "c", "namespace": "going"}},
            'configmaps "c" is forbidden: '
            "unable to create new content in namespace going because it is being terminated",
        ),
        (UPDATE, "configmaps", {"metadata": {"name": "c", "namespace": "going"}}, None),
        (DELETE, "configmaps", {"metadata": {"name": "c", "namespace": "going"}}, None),
        (DELETE, "namespaces", {"metadata": {"name": "ns"}}, None),
        (
            DELETE,
            "namespaces",
            {"metadata": {"name": "kube-system"}},
            'namespaces "kube-system" is forbidden: this namespace may not be deleted',
        ),
        (CREATE, "namespaces", {"metadata": {"name": "new"}}, None),
    ],
)
def test_namespaces(store: FakeStore, operation: str, what: str, obj: Object, error: str | None) -> None:
    assert refusal(store, operation, what, obj, obj, user=ADMIN) == error


def test_a_namespace_that_is_not_there(store: FakeStore) -> None:
    with pytest.raises(errors.ApiError) as raised:
        admit(store, CREATE, "configmaps", {"metadata": {"name": "c", "namespace": "none"}}, user=ADMIN)
    assert raised.value.code == 404


def test_the_cause_of_a_namespace_that_goes(store: FakeStore) -> None:
    with pytest.raises(errors.ApiError) as raised:
        admit(store, CREATE, "configmaps", {"metadata": {"name": "c", "namespace": "going"}}, user=ADMIN)
    assert raised.value.status["details"]["causes"][0]["reason"] == "NamespaceTerminating"


@pytest.mark.parametrize(
    ("size", "phase", "storage_class", "message"),
    [
        ("2Mi", "Bound", "growing", None),
        ("1Mi", "Pending", "", None),
        ("2Mi", "Pending", "growing", "Only bound persistent volume claims can be expanded"),
        ("2Mi", "Bound", "fixed", "only dynamically provisioned pvc can be resized"),
        ("2Mi", "Bound", "gone", "only dynamically provisioned pvc can be resized"),
        ("2Mi", "Bound", "", "only dynamically provisioned pvc can be resized"),
    ],
    ids=["grows", "nothing new", "not bound", "class that forbids it", "no such class", "no class"],
)
def test_claims_that_grow(store: FakeStore, size: str, phase: str, storage_class: str, message: str | None) -> None:
    store.add("storageclasses", {"metadata": {"name": "growing"}, "allowVolumeExpansion": True})
    store.add("storageclasses", {"metadata": {"name": "fixed"}})

    def claim(amount: str) -> Object:
        spec = {"storageClassName": storage_class, "resources": {"requests": {"storage": amount}}}
        return {"metadata": {"name": "c", "namespace": "ns"}, "spec": spec, "status": {"phase": phase}}

    got = refusal(store, UPDATE, "persistentvolumeclaims", claim(size), claim("1Mi"), user=ADMIN)
    if message is None:
        assert got is None
    else:
        assert got is not None and got.startswith(f'persistentvolumeclaims "c" is forbidden: {message}')


@pytest.mark.parametrize(
    ("cpu", "node_name", "message"),
    [
        ("1", "sized", None),
        ("2", "sized", "node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1000"),
        ("1", "gone", 'node "gone" not found'),
        ("9", "", None),
        ("1", "windows", 'pod resize is only supported on linux nodes, node "windows" is "windows"'),
        ("100m", "gone", None),
    ],
    ids=["fits", "too big", "no node", "not bound", "not linux", "nothing new"],
)
def test_resizes(store: FakeStore, cpu: str, node_name: str, message: str | None) -> None:
    for name, os_name in (("sized", "linux"), ("windows", "windows")):
        sized = node(metadata={"name": name, "labels": {"kubernetes.io/os": os_name}})
        store.add("nodes", {**sized, "status": {"allocatable": {"cpu": "1", "memory": "1Gi"}}})

    def wants(amount: str) -> Object:
        resources = {"requests": {"cpu": amount}}
        return pod("mine", nodeName=node_name, containers=[{"name": "c", "resources": resources}])

    got = refusal(store, UPDATE, "pods:resize", wants(cpu), wants("100m"), user=ADMIN)
    assert got == (None if message is None else f'pods "mine" is forbidden: {message}')
