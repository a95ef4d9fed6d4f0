from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from framework.apiserver import controllers
from framework.apiserver.controllers import base
from framework.apiserver.controllers.attach_detach import Attachable, AttachError
from framework.apiserver.errors import ApiError
from framework.apiserver.interfaces import Object
from framework.apiserver.server import APIServer
from framework.waiting import wait_for

TIMEOUT = 10.0
UNIQUE = "kubernetes.io/csi/d.example^h1"
ATTACHMENT = Attachable(UNIQUE, "d.example", "h1", "v1").attachment_name("n1")


@pytest.fixture
def server() -> APIServer:
    """Return a server with a namespace. Its store works although the server does not listen."""
    server = APIServer()
    base.create_unless_exists(server.store, "namespaces", {"metadata": {"name": "ns"}})
    return server


@pytest.fixture
def running(server: APIServer) -> Iterator[Callable[[Any], Any]]:
    """Return a function that starts controllers. They stop at the end of the test."""
    started = []

    def start(controller: Any) -> Any:
        controller.start(server)
        started.append(controller)
        return controller

    yield start
    for controller in started:
        controller.stop()


def volume(name: str = "v1", size: str = "1Gi", **spec: Any) -> Object:
    source = {"csi": {"driver": "d.example", "volumeHandle": spec.pop("handle", "h1")}}
    labels = spec.pop("labels", {})
    defaults = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]}
    return {"metadata": {"name": name, "labels": labels}, "spec": {**defaults, **source, **spec}}


def claim(name: str = "c1", size: str = "1Gi", **spec: Any) -> Object:
    defaults = {"resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"]}
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {**defaults, **spec}}


def pod(name: str = "p", node: str = "n1", **volume: Any) -> Object:
    container = {"name": "c", "image": "i"}
    source = volume or {"persistentVolumeClaim": {"claimName": "c1"}}
    spec = {"nodeName": node, "containers": [container], "volumes": [{"name": "data", **source}]}
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec}


def wait(server: APIServer, resource: str, name: str, condition: Callable[[Object], object]) -> Object:
    namespace = "ns" if resource in ("pods", "persistentvolumeclaims") else ""

    def look() -> Object | None:
        found = base.find(server.store, resource, name, namespace)
        return found if found is not None and condition(found) else None

    found = wait_for(f"{resource} {name}", look, TIMEOUT)
    assert found is not None
    return found


def wait_gone(server: APIServer, resource: str, name: str, namespace: str = "") -> None:
    wait_for(f"{resource} {name} is gone", lambda: base.find(server.store, resource, name, namespace) is None, TIMEOUT)


def wait_for_event(server: APIServer, reason: str) -> Object:
    def look() -> list[Object]:
        return [each for each in server.store.list("events", "ns") if each["reason"] == reason]

    return wait_for(f"event {reason}", look, TIMEOUT)[-1]


def phase(wanted: str) -> Callable[[Object], object]:
    return lambda obj: obj["status"].get("phase") == wanted


def test_a_claim_and_a_volume_find_each_other(server: APIServer, running: Callable[[Any], Any]) -> None:
    running(controllers.VolumeBinder())
    server.store.create("persistentvolumeclaims", claim(size="500Mi"))
    assert wait_for_event(server, "FailedBinding")["message"].startswith("no persistent volumes available")
    server.store.create("persistentvolumes", volume())
    bound = wait(server, "persistentvolumeclaims", "c1", phase("Bound"))
    assert bound["spec"]["volumeName"] == "v1"
    assert bound["status"] == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
    }
    assert bound["metadata"]["annotations"] == {
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
    }
    found = wait(server, "persistentvolumes", "v1", phase("Bound"))
    assert found["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]


FITS: list[tuple[str, Object, Object, bool]] = [
    ("plain", volume(), claim(), True),
    ("small", volume(size="1Mi"), claim(), False),
    ("class", volume(storageClassName="fast"), claim(storageClassName="fast"), True),
    ("other class", volume(), claim(storageClassName="fast"), False),
    ("mode", volume(volumeMode="Block"), claim(), False),
    ("block", volume(volumeMode="Block"), claim(volumeMode="Block"), True),
    ("access", volume(), claim(accessModes=["ReadWriteMany"]), False),
    ("more access", volume(accessModes=["ReadWriteMany", "ReadWriteOnce"]), claim(), True),
    ("labels", volume(labels={"a": "b"}), claim(selector={"matchLabels": {"a": "b"}}), True),
    ("other labels", volume(labels={"a": "c"}), claim(selector={"matchLabels": {"a": "b"}}), False),
    ("by name", volume(), claim(volumeName="v1"), True),
    ("by other name", volume(), claim(volumeName="v2"), False),
    ("reserved", volume(size="1Mi", claimRef={"namespace": "ns", "name": "c1"}), claim(), True),
    ("reserved for other", volume(claimRef={"namespace": "ns", "name": "c2"}), claim(), False),
    ("another's", volume(claimRef={"namespace": "ns", "name": "c1", "uid": "u"}), claim(), False),
]


@pytest.mark.parametrize(("what", "has", "wants", "fits"), FITS, ids=[each[0] for each in FITS])
def test_what_fits(
    server: APIServer, running: Callable[[Any], Any], what: str, has: Object, wants: Object, fits: bool
) -> None:
    server.store.create("persistentvolumes", has)
    server.store.create("persistentvolumeclaims", wants)
    # This claim is bound last. A claim that is not bound by then does not fit.
    server.store.create("persistentvolumes", volume("last", handle="h2", storageClassName="last"))
    server.store.create("persistentvolumeclaims", claim("last", storageClassName="last"))
    binder = running(controllers.VolumeBinder())
    wait(server, "persistentvolumeclaims", "last", phase("Bound"))
    if fits:
        wait(server, "persistentvolumeclaims", "c1", phase("Bound"))
    else:
        binder.stop()
        assert server.store.get("persistentvolumeclaims", "c1", "ns")["status"]["phase"] == "Pending"


def test_the_smallest_is_taken(server: APIServer, running: Callable[[Any], Any]) -> None:
    for name, size in (("large", "3Gi"), ("small", "2Gi"), ("largest", "4Gi")):
        server.store.create("persistentvolumes", volume(name, size))
    server.store.create("persistentvolumeclaims", claim())
    running(controllers.VolumeBinder())
    assert wait(server, "persistentvolumeclaims", "c1", phase("Bound"))["spec"]["volumeName"] == "small"


@pytest.mark.parametrize("policy", ["Retain", "Delete"])
def test_what_becomes_of_a_volume(server: APIServer, running: Callable[[Any], Any], policy: str) -> None:
    running(controllers.VolumeBinder())
    server.store.create("persistentvolumes", volume(persistentVolumeReclaimPolicy=policy))
    server.store.create("persistentvolumeclaims", claim())
    wait(server, "persistentvolumeclaims", "c1", phase("Bound"))
    server.store.delete("persistentvolumeclaims", "c1", "ns")
    if policy == "Retain":
        wait(server, "persistentvolumes", "v1", phase("Released"))
    else:
        wait_gone(server, "persistentvolumes", "v1")


def test_a_claim_loses_its_volume(server: APIServer, running: Callable[[Any], Any]) -> None:
    running(controllers.VolumeBinder())
    server.store.create("persistentvolumes", volume())
    server.store.create("persistentvolumeclaims", claim())
    wait(server, "persistentvolumeclaims", "c1", phase("Bound"))
    server.store.delete("persistentvolumes", "v1")
    wait(server, "persistentvolumeclaims", "c1", phase("Lost"))
    assert wait_for_event(server, "ClaimLost")["type"] == "Warning"


def test_a_claim_grows(server: APIServer, running: Callable[[Any], Any]) -> None:
    running(controllers.VolumeBinder())
    server.store.create("persistentvolumes", volume())
    server.store.create("persistentvolumeclaims", claim())
    wait(server, "persistentvolumeclaims", "c1", phase("Bound"))
    patch = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    server.store.patch("persistentvolumeclaims", "c1", patch, "ns")
    pending = wait(server, "persistentvolumeclaims", "c1", lambda obj: obj["status"].get("conditions"))
    assert [each["type"] for each in pending["status"]["conditions"]] == ["FileSystemResizePending"]
    assert pending["status"]["allocatedResourceStatuses"] == {"storage": "NodeResizePending"}
    assert pending["status"]["capacity"] == {"storage": "1Gi"}, "the node has done nothing yet"
    assert server.store.get("persistentvolumes", "v1")["spec"]["capacity"] == {"storage": "2Gi"}


TEMPLATE: Object = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def test_a_pod_gets_its_claim_and_takes_it_away(server: APIServer, running: Callable[[Any], Any]) -> None:
    running(controllers.EphemeralClaims())
    running(controllers.GarbageCollector())
    made = server.store.create("pods", pod(ephemeral={"volumeClaimTemplate": TEMPLATE}))
    found = wait(server, "persistentvolumeclaims", "p-data", bool)
    assert found["metadata"]["labels"] == {"a": "b"}
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", made["metadata"]["uid"], True)
    server.store.delete("persistentvolumeclaims", "p-data", "ns")
    before = found["metadata"]["uid"]
    wait(server, "persistentvolumeclaims", "p-data", lambda again: again["metadata"]["uid"] != before)
    server.store.delete("pods", "p", "ns", grace_period_seconds=0)
    wait_gone(server, "persistentvolumeclaims", "p-data", "ns")


def test_a_claim_that_is_not_the_pods(server: APIServer, running: Callable[[Any], Any]) -> None:
    running(controllers.EphemeralClaims())
    server.store.create("persistentvolumeclaims", claim("p-data"))
    server.store.create("pods", pod(ephemeral={"volumeClaimTemplate": TEMPLATE}))
    message = wait_for_event(server, "FailedBinding")["message"]
    assert message == 'ephemeral volume data: PVC "p-data" was not created for pod "p" (pod is not owner)'
    server.store.delete("pods", "p", "ns", grace_period_seconds=0)
    server.store.get("persistentvolumeclaims", "p-data", "ns")


@pytest.fixture
def claimed(server: APIServer, running: Callable[[Any], Any]) -> None:
    """Create a node, and a claim that is bound to a volume that must be attached."""
    server.store.create("nodes", {"metadata": {"name": "n1"}})
    running(controllers.VolumeBinder())
    server.store.create("persistentvolumes", volume())
    server.store.create("persistentvolumeclaims", claim())
    wait(server, "persistentvolumeclaims", "c1", phase("Bound"))


def names_attached(node: Object) -> list[str]:
    return [each["name"] for each in node["status"].get("volumesAttached") or []]


def use(server: APIServer, *names: str) -> None:
    server.store.patch("nodes", "n1", {"status": {"volumesInUse": list(names)}}, subresource="status")


@pytest.mark.usefixtures("claimed")
def test_a_volume_is_attached_while_a_pod_wants_or_the_node_uses_it(
    server: APIServer, running: Callable[[Any], Any]
) -> None:
    running(controllers.AttachDetach())
    server.store.create("pods", pod())
    wait(server, "nodes", "n1", lambda node: names_attached(node) == [UNIQUE])
    attachment = server.store.get("volumeattachments", ATTACHMENT)
    assert attachment["spec"] == {
        "attacher": "d.example",
        "nodeName": "n1",
        "source": {"persistentVolumeName": "v1"},
    }
    assert attachment["status"] == {"attached": True, "attachmentMetadata": {"attachedTo": "n1"}}
    use(server, UNIQUE)
    server.store.delete("pods", "p", "ns", grace_period_seconds=0)
    # The test creates and deletes a second pod. After that, the controller has seen the end of the first pod.
    server.store.create("pods", pod("q", iscsi={"targetPortal": "t", "iqn": "iqn.2026-01.x:y", "lun": 1}))
    iscsi = "kubernetes.io/iscsi/t:iqn.2026-01.x:y:1"
    wait(server, "nodes", "n1", lambda node: names_attached(node) == [UNIQUE, iscsi])
    server.store.delete("pods", "q", "ns", grace_period_seconds=0)
    wait(server, "nodes", "n1", lambda node: names_attached(node) == [UNIQUE])
    server.store.get("volumeattachments", ATTACHMENT)
    use(server)
    wait(server, "nodes", "n1", lambda node: names_attached(node) == [])
    wait_gone(server, "volumeattachments", ATTACHMENT)


@pytest.mark.usefixtures("claimed")
def test_a_driver_that_wants_no_attachments(server: APIServer, running: Callable[[Any], Any]) -> None:
    driver = {"metadata": {"name": "d.example"}, "spec": {"attachRequired": False}}
    server.store.create("csidrivers", driver)
    controller = running(controllers.AttachDetach())
    server.store.create("pods", pod())
    server.store.create("pods", pod("q", iscsi={"targetPortal": "t", "iqn": "iqn.2026-01.x:y", "lun": 1}))
    wait(server, "nodes", "n1", names_attached)
    controller.stop()
    assert names_attached(server.store.get("nodes", "n1")) == ["kubernetes.io/iscsi/t:iqn.2026-01.x:y:1"]
    assert server.store.list("volumeattachments") == []


@pytest.mark.usefixtures("claimed")
def test_an_attachment_that_fails_and_waits(server: APIServer, running: Callable[[Any], Any]) -> None:
    def fail(attachment: Object) -> Mapping[str, str]:
        raise AttachError("no such disk")

    controller = running(controllers.AttachDetach(fail))
    server.store.create("pods", pod())
    failed = wait(server, "volumeattachments", ATTACHMENT, lambda obj: obj["status"].get("attachError"))
    assert failed["status"]["attachError"]["message"] == "no such disk" and not failed["status"]["attached"]
    assert names_attached(server.store.get("nodes", "n1")) == []
    controller.attach = lambda attachment: None
    controller.try_again()
    assert not server.store.get("volumeattachments", ATTACHMENT)["status"]["attached"]
    controller.attach = lambda attachment: {}
    controller.try_again()
    wait(server, "nodes", "n1", lambda node: names_attached(node) == [UNIQUE])
    assert "attachError" not in server.store.get("volumeattachments", ATTACHMENT)["status"]


@pytest.mark.usefixtures("claimed")
def test_a_node_that_is_gone_has_nothing_attached(server: APIServer, running: Callable[[Any], Any]) -> None:
    running(controllers.AttachDetach())
    server.store.create("pods", pod())
    wait(server, "nodes", "n1", names_attached)
    server.store.delete("nodes", "n1")
    wait_gone(server, "volumeattachments", ATTACHMENT)


PV, PVC, VA, CSI, NODE, CLASS = (
    "persistentvolumes",
    "persistentvolumeclaims",
    "volumeattachments",
    "csidrivers",
    "csinodes",
    "storageclasses",
)
SHARED = ["ReadWriteOncePod", "ReadWriteOnce"]


def attachment(**spec: Any) -> Object:
    source = {"persistentVolumeName": "v"}
    return {"metadata": {"name": "x"}, "spec": {"attacher": "d", "nodeName": "n", "source": source, **spec}}


def named(**rest: Any) -> Object:
    return {"metadata": {"name": "x"}, **rest}


def drivers(*several: Object) -> Object:
    return named(spec={"drivers": list(several)})


INVALID: list[tuple[str, Object, str]] = [
    (PV, volume(accessModes=[]), "spec.accessModes: Required value"),
    (PV, volume(accessModes=["Some"]), 'spec.accessModes: Unsupported value: "Some"'),
    (PV, volume(accessModes=SHARED), "may not use ReadWriteOncePod with other access modes"),
    (PV, volume(size="0"), "must be greater than zero"),
    (PV, volume(capacity={}), "spec.capacity: Unsupported value"),
    (PV, volume(persistentVolumeReclaimPolicy="Keep"), 'persistentVolumeReclaimPolicy: Unsupported value: "Keep"'),
    (PV, volume(volumeMode="Tape"), 'spec.volumeMode: Unsupported value: "Tape"'),
    (PV, volume(nfs={"server": "s", "path": "/"}), "spec.nfs: Forbidden: may not specify more than 1 volume type"),
    (PV, volume(handle=""), "spec.csi.volumeHandle: Required value"),
    (PVC, claim(accessModes=[]), "at least 1 access mode is required"),
    (PVC, claim(resources={}), "spec.resources[storage]: Required value"),
    (VA, attachment(attacher=""), "spec.attacher: Required value"),
    (VA, attachment(source={}), "spec.source: Required value"),
    (VA, attachment(nodeName=""), "spec.nodeName: Required value"),
    (CSI, named(spec={"fsGroupPolicy": "Any"}), 'spec.fsGroupPolicy: Unsupported value: "Any"'),
    (CSI, named(spec={"volumeLifecycleModes": ["Any"]}), 'spec.volumeLifecycleModes: Unsupported value: "Any"'),
    (CSI, named(spec={"tokenRequests": [{}, {}]}), 'spec.tokenRequests[1].audience: Duplicate value: ""'),
    (NODE, drivers({"name": "d"}), "spec.drivers[0].nodeID: Required value"),
    (NODE, drivers(*[{"name": "d", "nodeID": "i"}] * 2), 'spec.drivers[1].name: Duplicate value: "d"'),
    (NODE, drivers({"name": "d", "nodeID": "i" * 257}), "must be 256 characters or less"),
    (CLASS, named(), "provisioner: Required value"),
]


@pytest.mark.parametrize(("resource", "obj", "message"), INVALID, ids=[each[2] for each in INVALID])
def test_what_is_refused(server: APIServer, resource: str, obj: Object, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        server.store.create(resource, obj)
    assert caught.value.code == 422 and message in caught.value.message


LOCAL = {"metadata": {"name": "x"}, "spec": {**volume()["spec"], "local": {"path": "/x"}}}
del LOCAL["spec"]["csi"]


def test_a_local_volume_needs_to_say_where_it_is(server: APIServer) -> None:
    with pytest.raises(ApiError, match="Local volume requires node affinity"):
        server.store.create(PV, LOCAL)


CHANGES: list[tuple[str, Object, Object, str | None]] = [
    (PV, volume(), {"spec": {"csi": {"volumeHandle": "other"}}}, "persistentvolumesource is immutable"),
    (PV, volume(), {"spec": {"csi": {"controllerExpandSecretRef": {"name": "s", "namespace": "n"}}}}, None),
    (PV, volume(), {"spec": {"volumeMode": "Block"}}, "volumeMode: Invalid value"),
    (PV, volume(), {"spec": {"capacity": {"storage": "2Gi"}}}, None),
    (PVC, claim(), {"spec": {"volumeName": "v"}}, None),
    (PVC, claim(volumeName="v"), {"spec": {"volumeName": "w"}}, "spec is immutable after creation"),
    (PVC, claim(), {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}, "spec is immutable after creation"),
    (VA, attachment(), {"spec": {"nodeName": "m"}}, "spec: Invalid value"),
    (VA, attachment(), {"metadata": {"labels": {"a": "b"}}}, None),
    (CSI, named(), {"spec": {"attachRequired": False}}, "spec.attachedRequired: Invalid value"),
    (CSI, named(), {"spec": {"podInfoOnMount": True}}, None),
    (NODE, drivers({"name": "d", "nodeID": "i"}), drivers({"name": "d", "nodeID": "j"}), "field is immutable"),
    (NODE, drivers({"name": "d", "nodeID": "i"}), drivers({"name": "e", "nodeID": "j"}), None),
    (NODE, drivers({"name": "d", "nodeID": "i"}), drivers({"name": "d", "nodeID": "i", "allocatable": {}}), None),
    (CLASS, named(provisioner="a"), {"provisioner": "b"}, "provisioner: Invalid value"),
    (CLASS, named(provisioner="a"), {"allowVolumeExpansion": True}, None),
]


@pytest.mark.parametrize(("resource", "obj", "patch", "message"), CHANGES)
def test_what_may_change(server: APIServer, resource: str, obj: Object, patch: Object, message: str | None) -> None:
    made = server.store.create(resource, obj)["metadata"]
    if message is None:
        server.store.patch(resource, made["name"], patch, made.get("namespace", ""))
        return
    with pytest.raises(ApiError) as caught:
        server.store.patch(resource, made["name"], patch, made.get("namespace", ""))
    assert message in caught.value.message
