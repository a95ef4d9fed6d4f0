from __future__ import annotations

import base64
import contextlib
import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography import x509

from framework.apiserver import certificates, controllers
from framework.apiserver.authorization import ClusterAuthorizer
from framework.apiserver.controllers import base, node_lifecycle, scheduler
from framework.apiserver.controllers.alarms import Alarms
from framework.apiserver.errors import ApiError
from framework.apiserver.interfaces import Controller, Object, Request, UserInfo
from framework.apiserver.resources import BY_PLURAL
from framework.apiserver.server import APIServer
from framework.waiting import wait_for

TIMEOUT = 10.0
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


@pytest.fixture
def server() -> APIServer:
    """Return a server with a namespace. Its store works although the server does not listen."""
    server = APIServer()
    for name in ("ns", "default", "kube-node-lease"):
        base.create_unless_exists(server.store, "namespaces", {"metadata": {"name": name}})
    return server


@contextlib.contextmanager
def running(server: APIServer, *several: Controller) -> Iterator[None]:
    for controller in several:
        controller.start(server)
    try:
        yield
    finally:
        for controller in several:
            controller.stop()


def node(name: str = "n1", ready: str = "True", **changes: Any) -> Object:
    status: Object = {
        "allocatable": changes.pop("allocatable", {"cpu": "4", "memory": "8Gi", "pods": "110"}),
        "conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
    }
    if not ready:
        del status["conditions"]
    metadata = {"name": name, "labels": changes.pop("labels", {})}
    return {"metadata": metadata, "spec": changes, "status": status}


def pod(name: str = "p", requests: Object | None = None, **spec: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": requests or {}}}
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"containers": [container], **spec}}


def wait_for_pod(server: APIServer, name: str, condition: Callable[[Object], object]) -> Object:
    def look() -> Object | None:
        found = server.store.get("pods", name, "ns")
        return found if condition(found) else None

    found = wait_for(f"pod {name}", look, TIMEOUT)
    assert found is not None
    return found


def events(server: APIServer, reason: str, namespace: str = "ns") -> list[Object]:
    return [each for each in server.store.list("events", namespace) if each["reason"] == reason]


def wait_for_event(server: APIServer, reason: str, namespace: str = "ns") -> Object:
    return wait_for(f"event {reason}", lambda: events(server, reason, namespace), TIMEOUT)[-1]


def is_gone(server: APIServer, resource: str, name: str, namespace: str = "") -> bool:
    try:
        server.store.get(resource, name, namespace)
    except ApiError as err:
        return err.code == 404
    return False


def test_a_pod_is_bound(server: APIServer) -> None:
    server.store.create("nodes", node())
    with running(server, controllers.Scheduler()):
        server.store.create("pods", pod())
        event = wait_for_event(server, "Scheduled")
    found = server.store.get("pods", "p", "ns")
    assert found["spec"]["nodeName"] == "n1"
    assert [each["status"] for each in found["status"]["conditions"] if each["type"] == "PodScheduled"] == ["True"]
    assert event["message"] == "Successfully assigned ns/p to n1"
    assert (event["type"], event["action"], event["reportingComponent"]) == ("Normal", "Binding", "default-scheduler")
    assert event["involvedObject"]["uid"] == found["metadata"]["uid"] and event["eventTime"]


def near(operator: str, *values: str) -> Object:
    """Return a node affinity for a kind of disk."""
    term = {"matchExpressions": [{"key": "disk", "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


TAINT: Object = {"key": "k", "value": "v", "effect": "NoSchedule"}
EQUAL: Object = {"key": "k", "value": "v", "effect": "NoSchedule"}
HELPLESS = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
NO_VICTIMS = "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
TAINTED = f"0/1 nodes are available: 1 node(s) had untolerated taint(s). no new claims to deallocate, {HELPLESS}"
FITS: list[tuple[str, Object, Object, str | None]] = [
    ("plain", node(), pod(), None),
    ("selected", node(labels={"disk": "ssd"}), pod(nodeSelector={"disk": "ssd"}), None),
    (
        "not selected",
        node(labels={"disk": "hdd"}),
        pod(nodeSelector={"disk": "ssd"}),
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. "
        f"no new claims to deallocate, {HELPLESS}",
    ),
    ("tainted", node(taints=[TAINT]), pod(), TAINTED),
    ("tolerated", node(taints=[TAINT]), pod(tolerations=[EQUAL]), None),
    ("preferably not", node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), pod(), None),
    ("tainted twice", node(taints=[TAINT, {**TAINT, "effect": "NoExecute"}]), pod(tolerations=[EQUAL]), TAINTED),
    (
        "cordoned",
        node(unschedulable=True),
        pod(),
        f"0/1 nodes are available: 1 node(s) were unschedulable. no new claims to deallocate, {HELPLESS}",
    ),
    (
        "cordoned and tolerated",
        node(unschedulable=True),
        pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]),
        None,
    ),
    (
        "too large",
        node(),
        pod(requests={"cpu": "5", "memory": "9Gi"}),
        f"0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. no new claims to deallocate, {HELPLESS}",
    ),
    ("just right", node(), pod(requests={"cpu": "4000m"}), None),
    (
        "no such resource",
        node(),
        pod(requests={"ephemeral-storage": "1Gi"}),
        f"0/1 nodes are available: 1 Insufficient ephemeral-storage. no new claims to deallocate, {HELPLESS}",
    ),
    (
        "full",
        node(allocatable={"pods": "0"}),
        pod(),
        f"0/1 nodes are available: 1 Too many pods. no new claims to deallocate, {NO_VICTIMS}",
    ),
    ("attracted", node(labels={"disk": "ssd"}), pod(affinity=near("In", "ssd", "nvme")), None),
    (
        "not attracted",
        node(labels={"disk": "hdd"}),
        pod(affinity=near("NotIn", "hdd")),
        "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. "
        f"no new claims to deallocate, {HELPLESS}",
    ),
    (
        "polite",
        node(),
        pod(requests={"cpu": "5"}, preemptionPolicy="Never"),
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to "
        "preemptionPolicy=Never.",
    ),
]


@pytest.mark.parametrize(("where", "what", "message"), [row[1:] for row in FITS], ids=[row[0] for row in FITS])
def test_where_a_pod_fits(server: APIServer, where: Object, what: Object, message: str | None) -> None:
    server.store.create("nodes", where)
    with running(server, controllers.Scheduler()):
        server.store.create("pods", what)
        event = wait_for_event(server, "FailedScheduling" if message else "Scheduled")
        if message is None:
            return
        assert (event["type"], event["message"]) == ("Warning", message)
        found = wait_for_pod(server, "p", lambda it: base.condition(it, "PodScheduled"))
    condition = base.condition(found, "PodScheduled")
    assert condition is not None and (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == message


def test_a_pod_waits_for_a_node(server: APIServer) -> None:
    with running(server, controllers.Scheduler()):
        server.store.create("pods", pod())
        assert wait_for_event(server, "FailedScheduling")["message"] == "no nodes available to schedule pods"
        server.store.create("nodes", node(taints=[TAINT]))
        wait_for("the event with the other reason", lambda: len(events(server, "FailedScheduling")) == 2, TIMEOUT)
        server.store.update("nodes", node())
        wait_for_pod(server, "p", lambda it: it["spec"].get("nodeName") == "n1")


def test_a_pod_waits_for_room(server: APIServer) -> None:
    server.store.create("nodes", node())
    with running(server, controllers.Scheduler()):
        server.store.create("pods", pod("first", {"cpu": "3"}))
        wait_for_pod(server, "first", lambda it: it["spec"].get("nodeName"))
        server.store.create("pods", pod("second", {"cpu": "3"}))
        message = f"0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, {NO_VICTIMS}"
        assert wait_for_event(server, "FailedScheduling")["message"] == message
        server.store.delete("pods", "first", "ns", grace_period_seconds=0)
        wait_for_pod(server, "second", lambda it: it["spec"].get("nodeName"))
        assert len(events(server, "FailedScheduling")) == 1


def test_a_pod_waits_for_a_port_of_the_host(server: APIServer) -> None:
    def with_port(name: str, port: int) -> Object:
        made = pod(name)
        made["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
        return made

    server.store.create("nodes", node())
    with running(server, controllers.Scheduler()):
        for name, port in (("first", 80), ("other", 81)):
            server.store.create("pods", with_port(name, port))
            wait_for_pod(server, name, lambda it: it["spec"].get("nodeName"))
        server.store.create("pods", with_port("second", 80))
        assert wait_for_event(server, "FailedScheduling")["message"] == (
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. "
            f"no new claims to deallocate, {NO_VICTIMS}"
        )
        server.store.patch("pods", "first", {"status": {"phase": "Succeeded"}}, "ns", subresource="status")
        wait_for_pod(server, "second", lambda it: it["spec"].get("nodeName"))


def test_the_more_important_pod_has_the_room_that_there_is(server: APIServer) -> None:
    with running(server, controllers.Scheduler()):
        for name, priority in (("first", 0), ("important", 10)):
            server.store.create("pods", pod(name, {"cpu": "3"}, priority=priority))
        wait_for("both pods wait", lambda: len(events(server, "FailedScheduling")) == 2, TIMEOUT)
        server.store.create("nodes", node())
        wait_for_pod(server, "important", lambda it: it["spec"].get("nodeName"))
        wait_for("the other pod still waits", lambda: len(events(server, "FailedScheduling")) == 3, TIMEOUT)
    assert "nodeName" not in server.store.get("pods", "first", "ns")["spec"]


def test_pods_are_spread(server: APIServer) -> None:
    server.store.create("nodes", node("n1"))
    server.store.create("nodes", node("n2"))
    with running(server, controllers.Scheduler()):
        for index in range(4):
            server.store.create("pods", pod(f"p{index}"))
        wait_for("all pods are bound", lambda: len(events(server, "Scheduled")) == 4, TIMEOUT)
    nodes = [each["spec"]["nodeName"] for each in server.store.list("pods", "ns")]
    assert sorted(nodes) == ["n1", "n1", "n2", "n2"]


def test_pods_of_others_are_left_alone(server: APIServer) -> None:
    server.store.create("nodes", node())
    with running(server, controllers.Scheduler()):
        server.store.create("pods", pod("theirs", schedulerName="other"))
        server.store.create("pods", pod("gated", schedulingGates=[{"name": "example.com/wait"}]))
        server.store.create("pods", pod("ours"))
        wait_for_pod(server, "ours", lambda it: it["spec"].get("nodeName"))
    for name in ("theirs", "gated"):
        assert "nodeName" not in server.store.get("pods", name, "ns")["spec"]


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({}, False),
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, True),
    ],
)
def test_tolerations(toleration: Object, tolerated: bool) -> None:
    assert scheduler.tolerates([toleration], TAINT) == tolerated


def conditions(**status: str) -> list[Object]:
    return [{"type": kind, "status": value} for kind, value in status.items()]


TAINTS: list[tuple[list[Object], Object, list[tuple[str, str]]]] = [
    (conditions(Ready="True"), {}, []),
    (conditions(Ready="False"), {}, [(NOT_READY, "NoExecute"), (NOT_READY, "NoSchedule")]),
    (conditions(Ready="Unknown"), {}, [(UNREACHABLE, "NoExecute"), (UNREACHABLE, "NoSchedule")]),
    (
        conditions(Ready="True", MemoryPressure="True", DiskPressure="True", PIDPressure="True"),
        {},
        [
            ("node.kubernetes.io/disk-pressure", "NoSchedule"),
            ("node.kubernetes.io/memory-pressure", "NoSchedule"),
            ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ],
    ),
    (
        conditions(Ready="True", NetworkUnavailable="True"),
        {},
        [("node.kubernetes.io/network-unavailable", "NoSchedule")],
    ),
    (conditions(Ready="True"), {"unschedulable": True}, [("node.kubernetes.io/unschedulable", "NoSchedule")]),
    (conditions(Ready="True"), {"taints": [TAINT]}, [("k", "NoSchedule")]),
    (conditions(Ready="True"), {"taints": [{"key": NOT_READY, "effect": "NoSchedule"}]}, []),
    ([], {"taints": [{"key": NOT_READY, "effect": "NoSchedule"}]}, []),
    (
        conditions(Ready="False"),
        {"taints": [{"key": UNREACHABLE, "effect": "NoExecute"}, TAINT]},
        [("k", "NoSchedule"), (NOT_READY, "NoExecute"), (NOT_READY, "NoSchedule")],
    ),
]


@pytest.mark.parametrize(("conditions", "spec", "expected"), TAINTS)
def test_taints(conditions: list[Object], spec: Object, expected: list[tuple[str, str]]) -> None:
    found: Object = {"metadata": {"name": "n1"}, "spec": dict(spec), "status": {"conditions": conditions}}
    changed = node_lifecycle.set_taints(found)
    assert [(each["key"], each["effect"]) for each in found["spec"].get("taints", [])] == expected
    assert changed == (found["spec"] != spec)
    assert not node_lifecycle.set_taints(found)


def test_a_node_gets_ready(server: APIServer) -> None:
    server.store.create("nodes", node(ready="False"))
    with running(server, controllers.NodeLifecycle()):
        assert wait_for_event(server, "RegisteredNode", "default")["involvedObject"]["name"] == "n1"
        wait_for("taints", lambda: server.store.get("nodes", "n1")["spec"].get("taints"), TIMEOUT)
        patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        server.store.patch("nodes", "n1", patch, subresource="status")
        wait_for("no taints", lambda: not server.store.get("nodes", "n1")["spec"].get("taints"), TIMEOUT)


def test_a_node_falls_silent(server: APIServer) -> None:
    server.store.create("nodes", node())
    created = server.store.create("pods", pod(nodeName="n1"))
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    server.store.patch("pods", "p", ready, "ns", subresource="status")
    with running(server, controllers.NodeLifecycle(grace_period=0.3)):
        event = wait_for_event(server, "NodeNotReady", "default")
        wait_for_event(server, "NodeNotReady")
        found = wait_for_pod(server, "p", lambda it: node_lifecycle._status(it, "Ready") == "False")
    assert event["message"] == "Node n1 status is now: NodeNotReady"
    assert found["metadata"]["uid"] == created["metadata"]["uid"]
    status = server.store.get("nodes", "n1")["status"]
    assert {(each["type"], each["status"], each["reason"]) for each in status["conditions"]} == {
        ("Ready", "Unknown", "NodeStatusUnknown"),
        *((kind, "Unknown", "NodeStatusNeverUpdated") for kind in ("MemoryPressure", "DiskPressure", "PIDPressure")),
    }


def test_a_lease_keeps_a_node(server: APIServer) -> None:
    server.store.create("nodes", node())
    lease: Object = {"metadata": {"name": "n1", "namespace": "kube-node-lease"}, "spec": {"leaseDurationSeconds": 40}}
    server.store.create("leases", lease)
    lifecycle = controllers.NodeLifecycle(grace_period=0.4)
    with running(server, lifecycle):
        renewals = iter(range(1, 60))

        def renew() -> bool:
            """Renew the lease, until it has been renewed for three times the grace period."""
            second = next(renewals)
            lease["spec"]["renewTime"] = f"2026-01-01T00:00:{second:02d}.000001Z"
            server.store.patch("leases", "n1", {"spec": lease["spec"]}, "kube-node-lease")
            return second > 12

        wait_for("many renewals", renew, TIMEOUT)
        assert node_lifecycle._status(server.store.get("nodes", "n1"), "Ready") == "True"
        wait_for_event(server, "NodeNotReady", "default")


def test_the_first_namespaces() -> None:
    server = APIServer()
    with running(server, controllers.Namespaces(b"CA")):
        names = {each["metadata"]["name"] for each in server.store.list("namespaces")}
        assert names == {"default", "kube-system", "kube-public", "kube-node-lease"}
        for name in names:
            assert server.store.get("serviceaccounts", "default", name)
            assert server.store.get("configmaps", "kube-root-ca.crt", name)["data"] == {"ca.crt": "CA"}
        server.store.create("namespaces", {"metadata": {"name": "new"}})
        wait_for(
            "the namespace's service account", lambda: not is_gone(server, "serviceaccounts", "default", "new"), TIMEOUT
        )
        wait_for("the namespace's CA", lambda: not is_gone(server, "configmaps", "kube-root-ca.crt", "new"), TIMEOUT)


def test_what_is_deleted_or_changed_comes_back(server: APIServer) -> None:
    with running(server, controllers.Namespaces(b"CA")):
        # The controller creates the service account before this config map.
        wait_for("the first CA", lambda: not is_gone(server, "configmaps", "kube-root-ca.crt", "ns"), TIMEOUT)
        uid = server.store.get("serviceaccounts", "default", "ns")["metadata"]["uid"]
        server.store.delete("serviceaccounts", "default", "ns")

        def look() -> bool:
            gone = is_gone(server, "serviceaccounts", "default", "ns")
            return not gone and bool(server.store.get("serviceaccounts", "default", "ns")["metadata"]["uid"] != uid)

        wait_for("another account", look, TIMEOUT)
        server.store.patch("configmaps", "kube-root-ca.crt", {"data": {"ca.crt": "other"}}, "ns")

        def repaired() -> bool:
            return bool(server.store.get("configmaps", "kube-root-ca.crt", "ns")["data"]["ca.crt"] == "CA")

        wait_for("the CA", repaired, TIMEOUT)


def test_a_namespace_goes_with_all_that_is_in_it(server: APIServer) -> None:
    with running(server, controllers.Namespaces(b"CA")):
        server.store.create("configmaps", {"metadata": {"name": "c", "namespace": "ns"}})
        server.store.create("pods", pod(nodeName="n1"))
        budget = {"metadata": {"name": "b", "namespace": "ns", "finalizers": ["example.com/wait"]}}
        server.store.create("poddisruptionbudgets", budget)
        server.store.delete("namespaces", "ns")
        wait_for("the config map is gone", lambda: is_gone(server, "configmaps", "c", "ns"), TIMEOUT)
        assert server.store.get("namespaces", "ns")["status"]["phase"] == "Terminating"
        wait_for_pod(server, "p", lambda it: it["metadata"].get("deletionTimestamp"))
        server.store.delete("pods", "p", "ns", grace_period_seconds=0)  # The pod's kubelet deletes it in this way.
        assert server.store.get("namespaces", "ns")["status"]["phase"] == "Terminating"
        server.store.patch("poddisruptionbudgets", "b", {"metadata": {"finalizers": None}}, "ns")
        wait_for("the namespace is gone", lambda: is_gone(server, "namespaces", "ns"), TIMEOUT)


def test_pods_of_a_node_that_is_gone(server: APIServer) -> None:
    server.store.create("nodes", node("n1"))
    server.store.create("nodes", node("n2"))
    server.store.create("pods", pod("lost", nodeName="n1"))
    server.store.create("pods", pod("kept", nodeName="n2"))
    with running(server, controllers.PodGarbageCollector(quarantine=0.01)):
        server.store.delete("nodes", "n1")
        wait_for("the pod is gone", lambda: is_gone(server, "pods", "lost", "ns"), TIMEOUT)
    assert server.store.get("pods", "kept", "ns")


def test_a_node_that_comes_back(server: APIServer) -> None:
    server.store.create("nodes", node())
    server.store.create("pods", pod(nodeName="n1"))
    collector = controllers.PodGarbageCollector(quarantine=0.3)
    with running(server, collector):
        server.store.delete("nodes", "n1")
        wait_for("the end of the quarantine", lambda: collector._missing, TIMEOUT)
        server.store.create("nodes", node())
        wait_for("the pod is gone", lambda: not collector._missing, TIMEOUT)
    assert server.store.get("pods", "p", "ns")


def test_a_pod_that_never_ran_needs_no_kubelet_to_go(server: APIServer) -> None:
    created = pod()
    created["metadata"]["finalizers"] = ["example.com/wait"]
    server.store.create("pods", created)
    server.store.create("pods", pod("other"))
    with running(server, controllers.PodGarbageCollector()):
        server.store.delete("pods", "other", "ns", grace_period_seconds=30)
        wait_for("the pod is gone", lambda: is_gone(server, "pods", "other", "ns"), TIMEOUT)


BOOTSTRAPPER = UserInfo("system:bootstrap:abcdef", groups=("system:bootstrappers",))
NODE = UserInfo("system:node:n1", groups=("system:nodes",))
CLIENT = ["digital signature", "client auth"]
SERVING = ["digital signature", "server auth"]


@pytest.fixture(scope="module")
def authority() -> certificates.CertificateAuthority:
    return certificates.CertificateAuthority.create()


@pytest.fixture
def signing(server: APIServer, authority: certificates.CertificateAuthority) -> Iterator[controllers.Signing]:
    signing = controllers.Signing(authority, ClusterAuthorizer(lambda: server.store))
    with running(server, signing):
        yield signing


def request_certificate(
    server: APIServer, user: UserInfo, signer: str, usages: list[str], names: tuple[str, ...] = (), **changes: Any
) -> None:
    """Create a certificate signing request for system:node:n1 as this user, with changes of its spec."""
    request, _ = certificates.make_request("system:node:n1", ["system:nodes"], names)
    encoded = base64.b64encode(changes.pop("request", request)).decode()
    spec = {"request": encoded, "signerName": signer, "usages": usages, **changes}
    asking = Request("POST", "", user=user, verb="create", resource="certificatesigningrequests")
    asking.group, asking.version = "certificates.k8s.io", "v1"
    obj = {"metadata": {"name": "c"}, "spec": spec}
    server._registry.create(asking, BY_PLURAL["certificatesigningrequests"], obj)


def wait_for_csr(server: APIServer, condition: Callable[[Object], object]) -> Object:
    def look() -> Object | None:
        found = server.store.get("certificatesigningrequests", "c")
        return found["status"] if condition(found.get("status") or {}) else None

    found = wait_for("the CSR", look, TIMEOUT)
    assert found is not None
    return found


def has(kind: str) -> Callable[[Object], object]:
    return lambda status: any(each["type"] == kind for each in status.get("conditions") or [])


def certificate(status: Object) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (BOOTSTRAPPER, "Auto approving kubelet client certificate after SubjectAccessReview."),
        (NODE, "Auto approving self kubelet client certificate after SubjectAccessReview."),
    ],
)
def test_a_node_gets_its_certificate(
    server: APIServer,
    signing: controllers.Signing,
    authority: certificates.CertificateAuthority,
    user: UserInfo,
    message: str,
) -> None:
    request_certificate(server, user, certificates.SIGNER_KUBELET_CLIENT, CLIENT, expirationSeconds=3600)
    status = wait_for_csr(server, lambda it: it.get("certificate"))
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"], condition["message"]) == ("Approved", "AutoApproved", message)
    found = certificate(status)
    found.verify_directly_issued_by(authority.certificate)
    left = found.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(minutes=59) < left <= datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("user", "signer", "usages", "names"),
    [
        (UserInfo("ann"), certificates.SIGNER_KUBELET_CLIENT, CLIENT, ()),
        (NODE, certificates.SIGNER_KUBELET_SERVING, SERVING, ("n1",)),
        (NODE, certificates.SIGNER_CLIENT, CLIENT, ()),
        (BOOTSTRAPPER, certificates.SIGNER_KUBELET_CLIENT, SERVING, ()),
    ],
)
def test_what_waits_for_an_administrator(
    server: APIServer, signing: controllers.Signing, user: UserInfo, signer: str, usages: list[str], names: tuple[str]
) -> None:
    request_certificate(server, user, signer, usages, names)
    signing.reconsider()
    assert not server.store.get("certificatesigningrequests", "c").get("status")


def test_what_an_administrator_approves_is_signed(server: APIServer, signing: controllers.Signing) -> None:
    request_certificate(server, NODE, certificates.SIGNER_KUBELET_SERVING, SERVING, ("n1",))
    csr = server.store.get("certificatesigningrequests", "c")
    csr["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "ByHand"}]}
    server.store.update("certificatesigningrequests", csr, subresource="approval")
    wait_for_csr(server, lambda it: it.get("certificate"))


def test_what_cannot_be_signed_fails(server: APIServer, signing: controllers.Signing) -> None:
    request_certificate(server, NODE, certificates.SIGNER_KUBELET_SERVING, CLIENT, ("n1",))
    csr = server.store.get("certificatesigningrequests", "c")
    csr["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "ByHand"}]}
    server.store.update("certificatesigningrequests", csr, subresource="approval")
    status = wait_for_csr(server, has("Failed"))
    (failed,) = (each for each in status["conditions"] if each["type"] == "Failed")
    assert failed["reason"] == "SignerValidationFailure"
    assert failed["message"] == "usages did not match [digital signature key encipherment server auth]"


def test_policies(server: APIServer, signing: controllers.Signing) -> None:
    signing.policy.approve_clients = False
    request_certificate(server, NODE, certificates.SIGNER_KUBELET_CLIENT, CLIENT)
    signing.reconsider()
    assert not server.store.get("certificatesigningrequests", "c").get("status")
    signing.policy.approve_clients = True
    signing.policy.sign = False
    signing.reconsider()
    assert "certificate" not in wait_for_csr(server, has("Approved"))
    signing.policy.sign = True
    signing.policy.forced_lifetime = datetime.timedelta(seconds=5)
    signing.reconsider()
    found = certificate(wait_for_csr(server, lambda it: it.get("certificate")))
    assert found.not_valid_after_utc - datetime.datetime.now(datetime.UTC) < datetime.timedelta(seconds=6)


@pytest.mark.parametrize(("switch", "kind"), [("deny", "Denied"), ("fail", "Failed"), ("approve_serving", "Approved")])
def test_switches(server: APIServer, signing: controllers.Signing, switch: str, kind: str) -> None:
    setattr(signing.policy, switch, True)
    if switch == "approve_serving":
        request_certificate(server, NODE, certificates.SIGNER_KUBELET_SERVING, SERVING, ("n1",))
    else:
        request_certificate(server, NODE, certificates.SIGNER_KUBELET_CLIENT, CLIENT)
    status = wait_for_csr(server, has(kind))
    if kind != "Approved":
        assert "certificate" not in status


def test_alarms() -> None:
    alarms = Alarms("test-alarms")
    called: list[str] = []
    alarms.start()
    try:
        alarms.call_after(3600, lambda: called.append("never"))
        alarms.call_after(0.05, lambda: called.append("second"))
        alarms.call_after(0, lambda: called.append("first"))
        wait_for("two calls", lambda: len(called) == 2, TIMEOUT)
    finally:
        alarms.stop()
    assert called == ["first", "second"]
