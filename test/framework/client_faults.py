"""Make every call to the API server fail in every way while the kubelet needs it.

A case is a call and a kind of fault. A call is a method of a resource's client and the file that calls it. The calls
come from the source (client_calls.py), so that no new call can be forgotten. Each call needs an entry in TRIGGERS,
which says what makes the kubelet make the call, or in UNIT_TESTS, which names the test in which the call fails without
a node. A client that the source passes on needs an entry in HANDED_ON.

All cases of one kind share a node. In each phase of the node's life all calls of that phase fail.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from framework import csi, dra, faulty_call
from framework.apiserver.cluster import Cluster, Options
from framework.apiserver.faults import Fault, Filter
from framework.apiserver.interfaces import UserInfo
from framework.client_calls import Call, Mention
from framework.cluster_node import RealKubelet, running
from framework.containerd import ROOT
from framework.csi import CSIDriver
from framework.faults import noting
from framework.faulty_call import Kind
from framework.faulty_plugins import DRA
from framework.impatient_kubelet import INFORMERS
from framework.log_followers import insecure_context
from framework.pod_history import PodHistory
from framework.pods import pod, sleeper
from framework.waiting import wait_for
from pkg.volume.csi import csi_attacher

NODE = "faulty"
BYSTANDER = "bystander"
DRIVER = "faulty.csi"
DEVICE_DRIVER = "faulty.dra"
CONFIG: Mapping[str, object] = {
    "syncFrequency": "1s",
    "nodeStatusUpdateFrequency": "1s",
    "nodeStatusReportFrequency": "1s",
    "nodeLeaseDurationSeconds": 4,
    "enableServer": True,
    "serverTLSBootstrap": True,
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
    "authorization": {"mode": "Webhook"},
    "featureGates": {"ClusterTrustBundle": True, "ClusterTrustBundleProjection": True},
}
# These are the tokens of users who send requests to the kubelet's server. Each review has its own token because the
# kubelet caches the reviews' results.
_REVIEWS = ("tokenreviews", "subjectaccessreviews")
OPTIONS = Options(static_tokens={token: UserInfo(f"user-{token}") for token in _REVIEWS})
_PATIENCE = 60.0
_ANSWER_TIMEOUT = 30.0


class Phase(Enum):
    """Define when the kubelet makes the call that fails."""

    POD = "a pod starts or ends"
    WATCH = "watches restart, and the kubelet does its periodic work"
    LIST = "watches fail, so that the kubelet lists"
    START = "the kubelet starts"


@dataclass
class Case:
    """Describe a call that fails on a node."""

    node: RealKubelet
    call: Call
    kind: Kind
    fault: Fault | None = None
    # These faults are active at the same time.
    others: list[Fault] = field(default_factory=list)
    # `failure` says why the case has failed. It is empty if the case has not failed.
    failure: str = ""

    @property
    def name(self) -> str:
        """Return the name of the case's pod and of the objects that the pod needs."""
        return str(self.call).lower().replace("_", "-")

    @property
    def store(self) -> Any:
        return self.node.cluster.store

    def make(self, resource: str, obj: dict[str, Any], namespace: str = "default") -> None:
        metadata = {"name": self.name, **({"namespace": namespace} if namespace else {})}
        self.store.create(resource, {"metadata": metadata, **obj})

    def start_pod(self, container: Mapping[str, Any] | None = None, **spec: Any) -> None:
        self.node.create(pod(self.name, sleeper(**(container or {})), grace=1, **spec))


@dataclass(frozen=True)
class Trigger:
    """Describe what makes the kubelet make a call."""

    act: Callable[[Case], object]
    phase: Phase = Phase.POD
    # Only calls about the object of this name fail. None means that all calls fail.
    name: Callable[[Case], str] | None = None
    # `prepare` runs before the calls fail.
    prepare: Callable[[Case], object] | None = None
    # After this number of failures the calls succeed again, so that the kubelet makes the calls that follow, too. 0
    # means that all calls fail.
    times: int = 0
    # `static` says that the pod is a static pod.
    static: bool = False
    # `rejected` says that the node rejects the pod.
    rejected: bool = False
    # `recovered` reports whether the kubelet has recovered after the end of the fault.
    recovered: Callable[[Case], bool] | None = None


def _nothing(case: Case) -> None:
    """Do nothing: the kubelet makes the call all the time, or because of what the phase does."""


def _own(case: Case) -> str:
    return case.name


def _mirror(case: Case) -> str:
    return f"{case.name}-{case.node.node}"


def _pod(case: Case) -> None:
    case.start_pod()


def _unhealthy_pod(case: Case) -> None:
    """Create a pod for which the kubelet emits the same event again and again."""
    probe = {"tcpSocket": {"host": "127.0.0.1", "port": 1}, "periodSeconds": 1, "failureThreshold": 1000}
    case.start_pod({"livenessProbe": probe})


def _misplaced_pod(case: Case) -> None:
    """Create a pod whose node selector does not match the node."""
    case.start_pod(nodeSelector={"name": case.name})


def _delete_pod(case: Case) -> None:
    case.node.delete(case.name)


def _running_pod(case: Case) -> None:
    case.start_pod()
    case.node.wait_for_api_running(case.name)


def _pod_with_secret(case: Case) -> None:
    case.make("secrets", {"stringData": {"key": "value"}})
    case.start_pod(_environment("secretKeyRef", case.name))


def _pod_with_config_map(case: Case) -> None:
    case.make("configmaps", {"data": {"key": "value"}})
    case.start_pod(_environment("configMapKeyRef", case.name))


def _environment(source: str, name: str) -> Mapping[str, Any]:
    return {"env": [{"name": "KEY", "valueFrom": {source: {"name": name, "key": "key"}}}]}


def _no_watch(case: Case) -> None:
    """Make watches of the object fail, so that the kubelet lists it."""
    faults = case.node.cluster.faults
    case.others.append(faults.status(400, verb="watch", resource=case.call.resource, name=case.name))


def _pod_with_token(case: Case) -> None:
    case.make("serviceaccounts", {})
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    case.start_pod(_MOUNTS, volumes=_projected(source), serviceAccountName=case.name)


_MOUNTS: Mapping[str, Any] = {"volumeMounts": [{"name": "volume", "mountPath": "/volume"}]}


def _projected(source: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "volume", "projected": {"sources": [source]}}]


def _pod_with_claim(case: Case) -> None:
    source = {"hostPath": {"path": str(case.node.folder)}}
    modes = {"accessModes": ["ReadWriteOnce"]}
    bound = {"claimRef": {"namespace": "default", "name": case.name}, "capacity": {"storage": "1Mi"}}
    case.make("persistentvolumes", {"spec": {**modes, **bound, **source}}, namespace="")
    wanted = {"resources": {"requests": {"storage": "1Mi"}}, "volumeName": case.name}
    case.make("persistentvolumeclaims", {"spec": {**modes, **wanted}})
    claim = {"name": "volume", "persistentVolumeClaim": {"claimName": case.name}}
    case.start_pod(_MOUNTS, volumes=[claim])


def _driver_volume(case: Case, name: str, **more: Any) -> Mapping[str, Any]:
    """Create a claim of a volume of the driver, which a controller attaches, and return the pod's volume."""
    shape = {"accessModes": ["ReadWriteOnce"], **more}
    source = {"driver": DRIVER, "volumeHandle": name, "nodePublishSecretRef": {"name": name, "namespace": "default"}}
    bound = {"claimRef": {"namespace": "default", "name": name}, "capacity": {"storage": "16Mi"}, "csi": source}
    store = case.store
    store.create("secrets", {"metadata": {"name": name, "namespace": "default"}, "stringData": {"key": "value"}})
    store.create("persistentvolumes", {"metadata": {"name": name}, "spec": {**shape, **bound}})
    claim = {**shape, "resources": {"requests": {"storage": "16Mi"}}, "volumeName": name}
    store.create("persistentvolumeclaims", {"metadata": {"name": name, "namespace": "default"}, "spec": claim})
    return {"name": "volume", "persistentVolumeClaim": {"claimName": name}}


def _pod_of_driver(case: Case) -> None:
    case.start_pod(_MOUNTS, volumes=[_driver_volume(case, case.name)])


def _pod_with_device(case: Case) -> None:
    devices = {"volumeDevices": [{"name": "volume", "devicePath": "/dev/volume"}]}
    case.start_pod(devices, volumes=[_driver_volume(case, case.name, volumeMode="Block")])


def _running_pod_of_driver(case: Case) -> None:
    _pod_of_driver(case)
    case.node.wait_for_api_running(case.name)


def _running_pod_with_growing_volume(case: Case) -> None:
    csi.put_growing_class(case.node.cluster, DRIVER)
    csi.put_claimed(case.node.cluster, DRIVER, case.name)
    case.start_pod(_MOUNTS, volumes=[{"name": "volume", "persistentVolumeClaim": {"claimName": case.name}}])
    case.node.wait_for_api_running(case.name)


def _grow(case: Case) -> None:
    csi.grow(case.node.cluster, case.name)


def _has_grown(case: Case) -> bool:
    return csi.has_grown(case.node.cluster, case.name)


def _pod_with_devices(case: Case) -> None:
    dra.start(case.node, pod(case.name, sleeper(), grace=1), DEVICE_DRIVER)


def _attachment(case: Case) -> str:
    return csi_attacher.get_attachment_name(case.name, DRIVER, NODE)


def _static_pod(case: Case) -> None:
    case.node.write(pod(case.name, sleeper(), grace=1))


def _running_static_pod(case: Case) -> None:
    _static_pod(case)
    case.node.wait_for_api_running(_mirror(case))


def _remove_static_pod(case: Case) -> None:
    case.node.remove(case.name)


def _occupy_mirror(case: Case) -> None:
    """Create a pod on another node that has the name of the mirror pod."""
    other = pod(_mirror(case), sleeper())
    other["spec"]["nodeName"] = "elsewhere"
    case.node.create(other)


def _free_mirror(case: Case) -> None:
    case.node.delete(_mirror(case), grace=0)


def _ask_server(case: Case) -> None:
    """Send the kubelet's server a request that makes the kubelet call the API server."""
    address = ("127.0.0.1", case.node.port)
    connection = http.client.HTTPSConnection(*address, timeout=_ANSWER_TIMEOUT, context=insecure_context())
    with closing(connection):
        try:
            connection.request("GET", f"/pods?{case.name}", headers={"Authorization": f"Bearer {case.call.resource}"})
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            pass


_START = Trigger(_nothing, Phase.START, times=2)
_WATCH = Trigger(_nothing, Phase.WATCH)
_LIST = Trigger(_nothing, Phase.LIST)

_CONFIG_API = "kubelet/config/apiserver.py"
_WATCHED = "kubelet/util/manager/watch_based_manager.py"
_CSR = "pkg/client_go/util/certificate/csr/csr.py"
_CSI_NODES = "pkg/volume/csi/nodeinfomanager/nodeinfomanager.py"
_EVENTS = "pkg/client_go/tools/record/event.py"
_LEASES = "pkg/component_helpers/apimachinery/lease/controller.py"
_MIRRORS = "kubelet/pod/mirror_client.py"
_NODE_STATUS = "kubelet/kubelet_node_status.py"
_POPULATOR = "kubelet/volumemanager/populator/desired_state_of_world_populator.py"
_OPERATIONS = "pkg/volume/util/operationexecutor/operation_generator.py"
_RESIZE = "pkg/volume/util/resize_util.py"
_DRA = "kubelet/cm/dra/manager.py"
_RECONSTRUCT = "kubelet/volumemanager/reconciler/reconstruct.py"
_TOKEN_REVIEWS = "pkg/apiserver/plugin/authenticator/token/webhook.py"
_ACCESS_REVIEWS = "pkg/apiserver/plugin/authorizer/webhook.py"

_REFLECTED = ("nodes", "services", "runtimeclasses", "csidrivers", "clustertrustbundles")

TRIGGERS: Mapping[Call, Trigger] = {
    **{Call(INFORMERS, each, "watch"): _WATCH for each in _REFLECTED},
    **{Call(INFORMERS, each, "list"): _LIST for each in _REFLECTED},
    Call(_CONFIG_API, "pods", "watch"): _WATCH,
    Call(_CONFIG_API, "pods", "list"): _LIST,
    Call(_WATCHED, "secrets", "watch"): Trigger(_pod_with_secret, name=_own),
    Call(_WATCHED, "secrets", "list"): Trigger(_pod_with_secret, name=_own, prepare=_no_watch),
    Call(_WATCHED, "configmaps", "watch"): Trigger(_pod_with_config_map, name=_own),
    Call(_WATCHED, "configmaps", "list"): Trigger(_pod_with_config_map, name=_own, prepare=_no_watch),
    Call("pkg/util/pod/pod.py", "pods", "get"): Trigger(_pod, name=_own),
    Call("pkg/util/pod/pod.py", "pods", "patch"): Trigger(_pod, name=_own),
    Call("kubelet/status/status_manager.py", "pods", "delete"): Trigger(_delete_pod, name=_own, prepare=_running_pod),
    Call("kubelet/token/token_manager.py", "serviceaccounts", "create_token"): Trigger(_pod_with_token, name=_own),
    Call(_POPULATOR, "persistentvolumeclaims", "get"): Trigger(_pod_with_claim, name=_own),
    Call(_POPULATOR, "persistentvolumes", "get"): Trigger(_pod_with_claim, name=_own),
    Call(_OPERATIONS, "persistentvolumeclaims", "get"): Trigger(_pod_with_claim, name=_own),
    Call("pkg/volume/csi/csi_attacher.py", "volumeattachments", "get"): Trigger(_pod_of_driver, name=_attachment),
    Call("pkg/volume/csi/csi_block.py", "volumeattachments", "get"): Trigger(_pod_with_device, name=_attachment),
    Call("pkg/volume/csi/csi_plugin.py", "volumeattachments", "get"): Trigger(_pod_of_driver, name=_attachment),
    Call("pkg/volume/csi/csi_util.py", "secrets", "get"): Trigger(_pod_of_driver, name=_own),
    Call(_OPERATIONS, "nodes", "get"): Trigger(_pod_of_driver, times=2),
    Call(_RESIZE, "persistentvolumeclaims", "patch"): Trigger(
        _grow, name=_own, prepare=_running_pod_with_growing_volume, recovered=_has_grown
    ),
    Call(_DRA, "resourceclaims", "get"): Trigger(_pod_with_devices, name=_own),
    Call(_MIRRORS, "pods", "create"): Trigger(_static_pod, static=True, times=2),
    Call(_MIRRORS, "pods", "get"): Trigger(_static_pod, name=_mirror, prepare=_occupy_mirror, static=True),
    Call(_MIRRORS, "pods", "delete"): Trigger(
        _remove_static_pod, name=_mirror, prepare=_running_static_pod, static=True
    ),
    Call(_EVENTS, "events", "create"): Trigger(_pod, times=2),
    Call(_EVENTS, "events", "patch"): Trigger(_unhealthy_pod, times=2),
    Call("kubelet/kubelet_nodecache.py", "nodes", "get"): Trigger(_misplaced_pod, rejected=True),
    Call(_LEASES, "leases", "update"): Trigger(_nothing, Phase.WATCH, times=6),
    Call(_LEASES, "leases", "get"): _START,
    Call(_LEASES, "leases", "create"): _START,
    Call("kubelet/util/nodelease.py", "nodes", "get"): _START,
    Call("pkg/component_helpers/node/util/status.py", "nodes", "patch"): _WATCH,
    Call(_NODE_STATUS, "nodes", "create"): _START,
    Call(_NODE_STATUS, "nodes", "get"): _START,
    Call("pkg/volume/csi/csi_plugin.py", "csinodes", "get"): _START,
    Call(_CSI_NODES, "csinodes", "get"): _START,
    Call(_CSI_NODES, "csinodes", "create"): _START,
    Call(_CSI_NODES, "csinodes", "delete"): _START,
    Call(_CSI_NODES, "csinodes", "update"): _START,
    Call(_CSI_NODES, "nodes", "get"): _START,
    Call("kubelet/cm/dra/plugin/dra_plugin_manager.py", "resourceslices", "delete_collection"): _START,
    Call(_RECONSTRUCT, "nodes", "get"): Trigger(_nothing, Phase.START, times=2, prepare=_running_pod_of_driver),
    # This call asks which resources the API server has.
    Call("kubelet/clustertrustbundle/clustertrustbundle_manager.py", "", "get"): _START,
    Call(_CSR, "certificatesigningrequests", "create"): _START,
    Call(_CSR, "certificatesigningrequests", "list"): _START,
    Call(_CSR, "certificatesigningrequests", "watch"): _START,
    Call(_TOKEN_REVIEWS, "tokenreviews", "create"): Trigger(_ask_server, Phase.WATCH),
    Call(_ACCESS_REVIEWS, "subjectaccessreviews", "create"): Trigger(_ask_server, Phase.LIST),
}


def _reflected(file: str, *resources: str) -> list[Call]:
    return [Call(file, each, verb) for each in resources for verb in ("list", "watch")]


# The response to each of these calls reports all pods of the node to the kubelet.
_ALL_PODS = frozenset({Call(_CONFIG_API, "pods", "list"), Call(_CONFIG_API, "pods", "watch")})
# For each client that a file passes on, these are the calls that other files make with it.
HANDED_ON: Mapping[Mention, Sequence[Call]] = {
    Mention("cmd/kubelet/app/clients.py", "events"): [Call(_EVENTS, "events", each) for each in ("create", "patch")],
    Mention("kubelet/config/apiserver.py", "pods"): _reflected(_CONFIG_API, "pods"),
    Mention("kubelet/configmap/configmap_manager.py", "configmaps"): [
        *_reflected(_WATCHED, "configmaps"),
        Call(_WATCHED, "configmaps", "get"),
    ],
    Mention("kubelet/secret/secret_manager.py", "secrets"): [
        *_reflected(_WATCHED, "secrets"),
        Call(_WATCHED, "secrets", "get"),
    ],
    # The informers make the calls of the following clients.
    Mention("kubelet/runtimeclass/runtimeclass_manager.py", "runtimeclasses"): [],
    Mention("kubelet/volume_host.py", "csidrivers"): [],
    **{
        Mention(f"{INFORMERS}/{file}.py", resource): _reflected(INFORMERS, resource)
        for file, resource in {
            "certificates/v1beta1/clustertrustbundle": "clustertrustbundles",
            "core/v1/node": "nodes",
            "core/v1/service": "services",
            "node/v1/runtimeclass": "runtimeclasses",
            "storage/v1/csidriver": "csidrivers",
        }.items()
    },
    Mention("pkg/apiserver/authentication/authenticatorfactory/delegating.py", "tokenreviews"): [
        Call(_TOKEN_REVIEWS, "tokenreviews", "create")
    ],
    Mention("pkg/apiserver/authorization/authorizerfactory/delegating.py", "subjectaccessreviews"): [
        Call(_ACCESS_REVIEWS, "subjectaccessreviews", "create")
    ],
}
_SECRETS = "kubelet/secret/secret_manager_test.py::test_call_that_gets_a_secret"
_CONFIG_MAPS = "kubelet/configmap/configmap_manager_test.py::test_call_that_gets_a_config_map"
_UNWATCHED = "kubelet/util/manager/watch_based_manager_test.py::test_call_that_gets_what_is_not_watched"
_BOOTSTRAP = "kubelet/certificate/bootstrap/bootstrap_test.py"
# A node rarely makes these calls. Each fails in a unit test; see faulty_call.py.
UNIT_TESTS: Mapping[Call, str] = {
    Call("cmd/kubelet/app/orphans.py", "pods", "list"): "test/programs/orphans_test.py::test_call_that_lists_pods",
    Call("kubelet/certificate/bootstrap/bootstrap.py", "", "get"): f"{_BOOTSTRAP}::test_call_that_asks_for_healthz",
    Call("kubelet/secret/secret_manager.py", "secrets", "get"): _SECRETS,
    Call("kubelet/configmap/configmap_manager.py", "configmaps", "get"): _CONFIG_MAPS,
    Call(_WATCHED, "secrets", "get"): _UNWATCHED,
    Call(_WATCHED, "configmaps", "get"): _UNWATCHED,
    Call("kubelet/kubelet_build.py", "serviceaccounts", "get"): (
        "kubelet/kubelet_build_credentials_test.py::test_call_that_gets_a_service_account"
    ),
    Call(_CSR, "certificatesigningrequests", "get"): (
        "pkg/client_go/util/certificate/csr/csr_test.py::test_call_that_gets_a_request_of_an_earlier_run"
    ),
    Call("pkg/volume/iscsi/iscsi_disk.py", "secrets", "get"): (
        "pkg/volume/iscsi/iscsi_test.py::test_call_that_gets_a_secret"
    ),
}


def cases(kind: Kind) -> pytest.MarkDecorator:
    """Parametrize a test with all calls."""
    found = [pytest.param(call, id=f"{call}-{kind}") for call in TRIGGERS]
    return pytest.mark.parametrize("call", found)


def add_fault(case: Case) -> Fault:
    trigger = TRIGGERS[case.call]
    selected = Filter(verb=_verb(case.call), caller=_caller(case.call))
    if trigger.name is not None:
        selected["name"] = trigger.name(case)
    if trigger.times:
        selected["times"] = trigger.times
    return faulty_call.add_fault(case.node.cluster.faults, case.kind, case.call.resource, selected)


_PASSED_ON: Mapping[str, tuple[str, ...]] = {
    "pkg/component_helpers/node/util/status.py": (_NODE_STATUS, _CSI_NODES),
}


def _verb(call: Call) -> str:
    return {"create_token": "create", "delete_collection": "deletecollection"}.get(call.method, call.method)


def _caller(call: Call) -> str | tuple[str, ...]:
    return _PASSED_ON.get(call.caller, call.caller)


def _seen_as(call: Call) -> set[Call]:
    """Return the call as the API server sees it: with the verb, and with the files on whose behalf the call is made."""
    callers = _PASSED_ON.get(call.caller, (call.caller,))
    return {Call(each, call.resource, _verb(call)) for each in callers}


class ImpatientKubelet(RealKubelet):
    """Run a kubelet that gives up soon on an API server."""

    program = "framework.impatient_kubelet"

    def __init__(self, folder: Path, cluster: Cluster, history: PodHistory) -> None:
        super().__init__(folder, NODE, cluster, history, CONFIG)
        self.runtime.write_logs = True
        self.environment["PYTHONPATH"] = str(Path(ROOT) / "test")
        self.pki = folder / f"{NODE}-pki"


class Round:
    """Run a node on which all calls fail in one way, one phase after the other."""

    def __init__(self, node: ImpatientKubelet, kind: Kind) -> None:
        self.node = node
        self.kind = kind
        self._cases = {call: Case(node, call, kind) for call in TRIGGERS}
        self._bystander: list[str] = []

    def run(self) -> None:
        self.node.cluster.signing.policy.approve_serving = True
        self.node.join()
        store = self.node.cluster.store
        self.node.wait_for_condition(
            "the driver is registered", lambda: store.get("csinodes", NODE)["spec"].get("drivers")
        )
        # The kubelet reads trust bundles only when a pod has a volume of one.
        bundle = {"metadata": {"name": BYSTANDER}, "spec": {"trustBundle": self.node.cluster.authority.pem.decode()}}
        self.node.cluster.store.create("clustertrustbundles", bundle)
        self._create_bystander()
        pods = self._of(Phase.POD)
        self._run_pods([case for case in pods if not TRIGGERS[case.call].rejected])
        # The false responses of this phase describe the node. They would make the kubelet reject other pods, too, so no
        # other pod runs meanwhile.
        self._run_pods([case for case in pods if TRIGGERS[case.call].rejected], other=False)
        self._run_meanwhile(Phase.WATCH)
        self._run_meanwhile(Phase.LIST)
        self._run_start(self._of(Phase.START))

    def check(self, call: Call) -> None:
        """Raise AssertionError with the reason if the case has failed."""
        assert not self._cases[call].failure, self._cases[call].failure

    def unknown_calls(self) -> set[Call]:
        """Return the calls that the kubelet has made and that no table has, because the source does not show them."""
        requests = self.node.cluster.requests.calls()
        made = {Call(each.caller, each.resource, each.verb) for each in requests if each.caller}
        known = TRIGGERS.keys() | UNIT_TESTS.keys()
        return made.difference(*(_seen_as(call) for call in known))

    def _create_bystander(self) -> None:
        source = {"clusterTrustBundle": {"name": BYSTANDER, "path": "ca.pem"}}
        self.node.create(pod(BYSTANDER, sleeper(**_MOUNTS), volumes=_projected(source), grace=1))
        self.node.wait_for_api_running(BYSTANDER)
        self._bystander = self.node.container_ids(BYSTANDER)

    def _of(self, phase: Phase) -> list[Case]:
        return [case for call, case in self._cases.items() if TRIGGERS[call].phase is phase]

    def _run_pods(self, several: Sequence[Case], *, other: bool = True) -> None:
        """Run the cases' pods while their calls fail. With `other`, another pod starts and ends meanwhile."""
        self._prepare(several)
        self._go_wrong(several)
        if other:
            self.node.create(pod("other", sleeper(), grace=1))
            self.node.wait_for_api_running("other")
            self.node.delete("other")
            self.node.wait_until_gone("other")
        self._end(several)
        self._check_bystander(several)
        for case in several:
            with noting(case):
                self._see_pod_run(case)
        for case in several:
            with noting(case):
                self._delete(case)
        for case in several:
            with noting(case):
                self.node.wait_until_gone(_mirror(case) if TRIGGERS[case.call].static else case.name)

    def _prepare(self, several: Sequence[Case]) -> None:
        for case in several:
            if (prepare := TRIGGERS[case.call].prepare) is not None:
                prepare(case)

    def _see_pod_run(self, case: Case) -> None:
        trigger = TRIGGERS[case.call]
        if trigger.prepare is _occupy_mirror:
            _free_mirror(case)
        if trigger.rejected:
            self.node.wait_for_api_pod(case.name, "rejected", lambda version: version.phase == "Failed")
        elif trigger.act not in (_delete_pod, _remove_static_pod):
            self.node.wait_for_api_running(_mirror(case) if trigger.static else case.name)
        if (recovered := trigger.recovered) is not None:
            self.node.wait_for_condition(f"{case.call} has taken effect", lambda: recovered(case))

    def _delete(self, case: Case) -> None:
        trigger = TRIGGERS[case.call]
        if trigger.act in (_delete_pod, _remove_static_pod):
            return
        if trigger.static:
            _remove_static_pod(case)
        else:
            self.node.delete(case.name)

    def _run_meanwhile(self, phase: Phase) -> None:
        several = self._of(phase)
        resources = tuple({case.call.resource for case in several if case.call.method in ("watch", "list")})
        faults = self.node.cluster.faults
        with ExitStack() as others:
            if phase is Phase.LIST:
                others.enter_context(faults.status(400, verb="watch", resource=resources))
            self._go_wrong(several, lambda: self._cut_watches(resources))
        self._end(several)
        self._see_pod_live(f"after-{phase.name.lower()}", several)

    def _cut_watches(self, resources: tuple[str, ...]) -> None:
        """Make the kubelet list all watched objects again."""
        self.node.cluster.server.compact()
        self.node.cluster.faults.cut_watches(resource=resources)

    def _run_start(self, several: Sequence[Case]) -> None:
        left_behind = [case for case in several if TRIGGERS[case.call].prepare is not None]
        self._prepare(left_behind)
        self.node.kill()
        for certificate in self.node.pki.glob("kubelet-server*"):
            certificate.unlink()
        self.node.cluster.store.delete("leases", NODE, "kube-node-lease")
        self.node.cluster.store.delete("csinodes", NODE)
        # The object has no owner. Otherwise the cluster would collect it before the kubelet could read it, because its
        # node is gone.
        self.node.cluster.store.create("csinodes", {"metadata": {"name": NODE}, "spec": {"drivers": []}})
        # The kubelet watches a certificate signing request until it is signed.
        signing = self.node.cluster.signing
        signing.policy.sign = False
        self._go_wrong(several, self.node.spawn)
        self._end(several)
        signing.policy.sign = True
        signing.reconsider()
        self._see_pod_live("after-start", several)
        for case in left_behind:
            with noting(case):
                self._delete(case)
                self.node.wait_until_gone(case.name)

    def _go_wrong(self, several: Sequence[Case], begin: Callable[[], object] = lambda: None) -> None:
        for case in several:
            case.fault = add_fault(case)
        begin()
        for case in several:
            with noting(case):
                TRIGGERS[case.call].act(case)
        for case in several:
            with noting(case):
                self._wait_until_hit(case)

    def _wait_until_hit(self, case: Case) -> None:
        fault = case.fault
        assert fault is not None
        wait_for(f"{case.call} fails", lambda: fault.hits, _PATIENCE, self.node.end_of_log)

    def _end(self, several: Sequence[Case]) -> None:
        for case in several:
            for fault in [case.fault, *case.others]:
                if fault is not None:
                    fault.end()
        if self.kind is Kind.NONSENSE:
            self._tell_the_truth({case.call.resource for case in several if case.call.method in ("list", "watch")})

    def _tell_the_truth(self, resources: set[str]) -> None:
        """Make the kubelet list the resources again, because what a watch has reported holds until its next event."""
        faults, requests = self.node.cluster.faults, self.node.cluster.requests
        before = faults.watches
        self._cut_watches(tuple(resources))

        def watched() -> bool:
            new = [each for each in faults.watches if each not in before]
            return resources <= {each.resource for each in new}

        self.node.wait_for_condition("the kubelet watches all resources again", watched)
        # The kubelet has processed the new lists by its second node status from now on.
        reports = len(requests.calls(verb="patch", resource="nodes"))
        self.node.wait_for_condition(
            "the kubelet has reported the node's status",
            lambda: len(requests.calls(verb="patch", resource="nodes")) > reports + 1,
        )

    def _see_pod_live(self, name: str, several: Sequence[Case]) -> None:
        """Check that the node is ready, that the bystander is untouched, and that a new pod starts and ends."""
        with noting(*several):
            self.node.wait_until_ready()
            self._check_bystander(several)
            self.node.create(pod(name, sleeper(), grace=1))
            self.node.wait_for_api_running(name)
            self.node.delete(name)
            self.node.wait_until_gone(name)

    def _check_bystander(self, several: Sequence[Case]) -> None:
        with noting(*several):
            if self.kind is Kind.NONSENSE and any(case.call in _ALL_PODS for case in several):
                # The false responses were about this pod, too. The pod cannot recover from some of them: a deadline in
                # the past, for example, fails the pod permanently. And if the pod has a false QoS class, the kubelet
                # reports the correct class to the API server only after a restart.
                self.node.delete(BYSTANDER, grace=0)
                self.node.wait_until_gone(BYSTANDER)
                self._create_bystander()
            assert self.node.container_ids(BYSTANDER) == self._bystander, "the fault affected the bystander"


@contextmanager
def round_of(kind: Kind, folder: Path) -> Iterator[Round]:
    """Run a cluster and a node, and yield the node's round when it is over."""
    with Cluster(folder / "cluster", OPTIONS) as cluster:
        history = PodHistory(cluster.store)
        try:
            with (
                running(ImpatientKubelet(folder, cluster, history)) as node,
                CSIDriver(folder, DRIVER, node.root_dir, NODE),
                DRA(folder, DEVICE_DRIVER, node.root_dir, NODE, ["v1.DRAPlugin"]),
            ):
                life = Round(node, kind)
                life.run()
                yield life
        finally:
            history.stop()
