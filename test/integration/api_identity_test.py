"""Test the certificates with which the kubelet identifies itself: late, renewed, expired and refused ones.

The tests also check what the kubelet reports about its certificates.
"""

from __future__ import annotations

import itertools
import json
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from cri_api.v1 import api_pb2 as runtimeapi
from cryptography import x509
from framework.apiserver import Request
from framework.apiserver import certificates as clustercerts
from framework.apiserver.cluster import Cluster
from framework.apiserver.faults import Filter
from framework.apiserver.interfaces import Object
from framework.hollow_kubelet import HollowKubelet
from framework.pods import pod, sleeper

from kubelet import kubelet_node_status

NODE = "node-1"
USER = f"system:node:{NODE}"
BOOTSTRAPPER = "system:bootstrap:abcdef"
RENEWS = {"rotateCertificates": True}
# This lifetime is short enough that a test sees several certificates, and long enough for a busy machine. Because the
# signer backdates certificates, each is due for renewal as soon as it arrives.
SHORT_LIFE = timedelta(seconds=25)

REQUESTS = "certificatesigningrequests"
# A kubelet watches these resources regardless of its pods.
WATCHED = {"pods", "nodes", "services", "runtimeclasses", "csidrivers"}

Start = Callable[..., HollowKubelet]


class Audit:
    """Record the certificates that the node's requests presented.

    An instance replaces the server's audit log and forwards each request to that log.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._lock = threading.Lock()
        self._serials: list[int] = []
        self._log = cluster.server.audit
        cluster.server.audit = self._note

    def _note(self, request: Request, code: int) -> None:
        if self._log is not None:
            self._log(request, code)
        if request.user.name == USER and code == 200:
            with self._lock:
                self._serials.append(_serial(request))

    def serials(self) -> list[int]:
        """List the serial numbers of the certificates in the order of their first use."""
        with self._lock:
            return list(dict.fromkeys(self._serials))


def _serial(request: Request) -> int:
    assert request.peer_certificate is not None
    return x509.load_der_x509_certificate(request.peer_certificate).serial_number


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts a kubelet with a static pod, which needs no API server."""
    made: list[HollowKubelet] = []

    def make(
        kubeconfig: Path, config: Mapping[str, object] | None = None, bootstrap: Path | None = None, node: str = NODE
    ) -> HollowKubelet:
        flags: dict[str, object] = {"kubeconfig": kubeconfig, "cert-dir": pki(tmp_path), "v": 2}
        if bootstrap is not None:
            flags["bootstrap-kubeconfig"] = bootstrap
        kubelet = HollowKubelet(tmp_path, node, config, flags)
        made.append(kubelet)
        kubelet.server.start()
        kubelet.write(pod("static", sleeper()))
        kubelet.spawn()
        return kubelet

    yield make
    for kubelet in made:
        kubelet.end()


def pki(folder: Path) -> Path:
    return folder / "pki"


def wait_for_static_pod(kubelet: HollowKubelet) -> str:
    """Wait until the static pod runs, and return the ID of its container."""
    (found,) = kubelet.wait_for_condition("the static pod runs", lambda: kubelet.container_ids("static"))
    return found


def node_or_none(cluster: Cluster) -> Object | None:
    return next((each for each in cluster.store.list("nodes") if each["metadata"]["name"] == NODE), None)


def is_ready(cluster: Cluster) -> bool:
    conditions = (node_or_none(cluster) or {}).get("status", {}).get("conditions") or []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def wait_for_ready(kubelet: HollowKubelet, cluster: Cluster) -> None:
    kubelet.wait_for_condition("the node is ready", lambda: is_ready(cluster))


def requests(cluster: Cluster, **fields: str) -> list[Object]:
    """List the certificate signing requests whose specs have these fields."""
    found = cluster.store.list(REQUESTS)
    return [each for each in found if all(each["spec"][key] == value for key, value in fields.items())]


def wait_for_request(kubelet: HollowKubelet, cluster: Cluster, **fields: str) -> Object:
    """Wait for the one matching request that nobody has approved or denied yet, and return it."""

    def look() -> list[Object]:
        return [each for each in requests(cluster, **fields) if not (each.get("status") or {}).get("conditions")]

    (found,) = kubelet.wait_for_condition("a certificate signing request", look)
    return found


def create_pod(cluster: Cluster, name: str) -> None:
    manifest = pod(name, sleeper(), nodeName=NODE, automountServiceAccountToken=False)
    manifest["metadata"]["namespace"] = "default"
    cluster.store.create("pods", manifest)


def run_pod(kubelet: HollowKubelet, cluster: Cluster, name: str) -> None:
    """Create a pod, and wait until the API server reports that it runs."""
    create_pod(cluster, name)
    wait_for_phase(kubelet, cluster, name)


def wait_for_phase(kubelet: HollowKubelet, cluster: Cluster, name: str) -> None:
    kubelet.wait_for_condition(
        f"pod {name} runs according to the API server",
        lambda: cluster.store.get("pods", name, "default")["status"].get("phase") == "Running",
    )


def cluster_container(kubelet: HollowKubelet, name: str) -> str:
    """Return the ID of the newest container of a pod from the API server."""
    return kubelet.runtime.container(name, "main").id


def running(kubelet: HollowKubelet, name: str) -> bool:
    """Report whether the runtime runs a container of this pod from the API server."""
    return any(
        each.sandbox.config.metadata.name == name and each.state == runtimeapi.CONTAINER_RUNNING
        for each in kubelet.runtime.containers
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- The first certificate --------------------------------------------------------------------------


def test_from_a_token_to_a_ready_node(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    """A bootstrap token gives the node a certificate, which the kubelet stores in the same files as the Go kubelet.

    Static pods start before anybody approves the certificate.
    """
    cluster.signing.policy.approve_clients = False
    kubeconfig = tmp_path / "kubelet.conf"
    kubelet = start(kubeconfig, RENEWS, cluster.bootstrap_kubeconfig())
    csr = wait_for_request(kubelet, cluster, username=BOOTSTRAPPER)
    container = wait_for_static_pod(kubelet)
    assert csr["spec"]["signerName"] == clustercerts.SIGNER_KUBELET_CLIENT
    assert node_or_none(cluster) is None

    cluster.signing.policy.approve_clients = True
    cluster.signing.reconsider()

    wait_for_ready(kubelet, cluster)
    run_pod(kubelet, cluster, "web")
    assert mode(kubeconfig) == 0o600
    current = pki(tmp_path) / "kubelet-client-current.pem"
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    assert (user["client-certificate"], user["client-key"]) == (str(current), str(current))
    assert current.is_symlink() and re.fullmatch(r"kubelet-client-[-\d]+\.pem", current.resolve().name)
    assert mode(current) == 0o600
    assert clustercerts.common_name(_certificate(current).subject) == USER
    own = pki(tmp_path) / "kubelet.crt"
    assert _certificate(own).issuer != cluster.authority.certificate.subject
    assert mode(pki(tmp_path) / "kubelet.key") == 0o600
    assert len(requests(cluster)) == 1
    assert kubelet.container_ids("static") == [container]


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_request_that_is_denied_is_made_again(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    cluster.signing.policy.deny = True
    kubelet = start(tmp_path / "kubelet.conf", RENEWS, cluster.bootstrap_kubeconfig())
    kubelet.wait_for_log("Certificate request was not signed", "is denied", "DeniedByPolicy")
    container = wait_for_static_pod(kubelet)
    assert node_or_none(cluster) is None

    cluster.signing.policy.deny = False

    wait_for_ready(kubelet, cluster)
    # The number of denied requests depends on how long the static pod took to start. Exactly one request was approved.
    denied = [_is_denied(each) for each in requests(cluster)]
    assert denied.count(True) >= 1 and denied.count(False) == 1
    assert kubelet.container_ids("static") == [container]


def _is_denied(csr: Object) -> bool:
    return any(each["type"] == "Denied" for each in csr["status"].get("conditions") or [])


def test_without_renewal_a_denied_request_ends_the_kubelet(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    """Without renewal a denied request ends the kubelet, which leaves only its key on disk.

    When a supervisor restarts the kubelet, the kubelet makes a new request.
    """
    cluster.signing.policy.deny = True
    kubeconfig = tmp_path / "kubelet.conf"
    kubelet = start(kubeconfig, None, cluster.bootstrap_kubeconfig())
    assert kubelet.wait_for_exit(30) == 1
    (line,) = kubelet.logged("Error: ")
    assert "is denied" in line and "DeniedByPolicy" in line
    assert not kubeconfig.exists()
    assert not list(pki(tmp_path).glob("*.pem"))

    cluster.signing.policy.deny = False
    for each in requests(cluster):
        cluster.store.delete(REQUESTS, each["metadata"]["name"])
    kubelet.spawn()

    wait_for_ready(kubelet, cluster)
    wait_for_static_pod(kubelet)


def test_with_a_bootstrap_file_an_expired_certificate_is_replaced(
    cluster: Cluster, start: Start, tmp_path: Path
) -> None:
    kubeconfig = cluster.node_kubeconfig(NODE, timedelta(hours=-1))
    kubelet = start(kubeconfig, RENEWS, cluster.bootstrap_kubeconfig())
    wait_for_ready(kubelet, cluster)
    wait_for_static_pod(kubelet)
    kubelet.wait_for_log("Part of the existing bootstrap client certificate is expired", str(kubeconfig))
    assert [each["spec"]["username"] for each in requests(cluster)] == [BOOTSTRAPPER]


# --- Renewal ----------------------------------------------------------------------------------------


def test_certificates_change_under_running_watches(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    """Certificates change while watches continue, and every new connection presents the current certificate.

    The kubelet still acts on the events of its watches. When nobody approves a renewal, an event on the node warns of
    it before the last certificate expires.
    """
    cluster.signing.policy.forced_lifetime = SHORT_LIFE
    audit = Audit(cluster)
    kubelet = start(tmp_path / "kubelet.conf", RENEWS, cluster.bootstrap_kubeconfig())
    wait_for_ready(kubelet, cluster)
    run_pod(kubelet, cluster, "before")

    def watches() -> dict[int, Request]:
        found = [each for each in cluster.faults.watches if each.user.name == USER and each.resource != REQUESTS]
        return {id(each): each for each in found}

    kubelet.wait_for_condition(
        "the kubelet's watches", lambda: {each.resource for each in watches().values()} >= WATCHED
    )
    opened = watches()
    # A watch may be the first request to present its certificate, but the audit log records a watch only when it has
    # ended.
    of_watches = {_serial(each) for each in opened.values()}
    for number in range(3):
        wait_for_another_certificate(kubelet, audit, of_watches)
        run_pod(kubelet, cluster, f"after-{number}")
    assert watches() == opened
    assert {each.resource for each in cluster.requests.calls(verb="watch", user=USER)} <= {REQUESTS}
    assert is_ready(cluster)

    cluster.signing.policy.approve_clients = False
    event = kubelet.wait_for_condition("a warning on the node", lambda: _expiry_events(cluster))[0]
    assert (event["type"], event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (
        "Warning",
        "Node",
        NODE,
    )
    assert re.fullmatch(
        r"The client certificate of this node expires in .*, and certificate signing request \S+ waits for approval",
        event["message"],
    )
    cluster.signing.policy.approve_clients = True
    cluster.signing.policy.forced_lifetime = None
    cluster.signing.reconsider()
    run_pod(kubelet, cluster, "in-the-end")
    assert watches() == opened


def wait_for_another_certificate(kubelet: HollowKubelet, audit: Audit, of_watches: set[int]) -> None:
    seen = {*audit.serials(), *of_watches}
    kubelet.wait_for_condition("another certificate is used", lambda: set(audit.serials()) - seen)


def _expiry_events(cluster: Cluster) -> list[Object]:
    return [each for each in cluster.store.list("events") if each["reason"] == "CertificateExpiring"]


def test_node_comes_back_after_its_certificate_ended(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    """A node whose certificate expired gets a new one with its bootstrap token, and its pods keep running."""
    cluster.signing.policy.forced_lifetime = timedelta(seconds=8)
    kubelet = start(tmp_path / "kubelet.conf", RENEWS, cluster.bootstrap_kubeconfig())
    wait_for_ready(kubelet, cluster)
    run_pod(kubelet, cluster, "web")
    container, static = cluster_container(kubelet, "web"), wait_for_static_pod(kubelet)
    cluster.signing.policy.approve_clients = False
    kubelet.wait_for_condition(
        "the node has no valid certificate", lambda: cluster.requests.calls(user="system:anonymous", code=403)
    )
    assert cluster_container(kubelet, "web") == container
    cluster.signing.policy.approve_clients = True
    cluster.signing.policy.forced_lifetime = None
    cluster.signing.reconsider()
    run_pod(kubelet, cluster, "after")
    assert cluster_container(kubelet, "web") == container
    assert kubelet.container_ids("static") == [static]


# --- The serving certificate ------------------------------------------------------------------------


def test_serving_certificate_from_the_cluster(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    """The kubelet requests a serving certificate for its node's addresses, and works without one until it arrives.

    Nothing approves such a request automatically.
    """
    kubelet = start(cluster.node_kubeconfig(NODE), {"serverTLSBootstrap": True})
    csr = wait_for_request(kubelet, cluster, signerName=clustercerts.SIGNER_KUBELET_SERVING)
    assert csr["spec"]["username"] == USER
    wait_for_ready(kubelet, cluster)
    current = pki(tmp_path) / "kubelet-server-current.pem"
    assert not current.exists()

    csr["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "ByHand"}]}
    cluster.store.update(REQUESTS, csr, subresource="approval")

    kubelet.wait_for_condition("the certificate is on disk", current.exists)
    found = _certificate(current)
    found.verify_directly_issued_by(cluster.authority.certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    node = node_or_none(cluster)
    assert node is not None
    assert sorted(str(name.value) for name in names) == sorted(each["address"] for each in node["status"]["addresses"])
    assert mode(current) == 0o600
    assert not (pki(tmp_path) / "kubelet.crt").exists()


# --- Refused credentials ----------------------------------------------------------------------------


def with_wrong_ca(cluster: Cluster) -> Path:
    path = cluster.directory / "wrong-ca.kubeconfig"
    other = clustercerts.CertificateAuthority.create("other").pem
    path.write_bytes(clustercerts.kubeconfig(cluster.url, other, USER, cluster.authority.node_pair(NODE)))
    return path


NOT_ACCEPTED = r"Unauthorized: Post \S+/api/v1/nodes\S+ the server does not accept the client certificate of "


@pytest.mark.parametrize(
    ("make", "told"),
    [
        pytest.param(
            with_wrong_ca,
            r"Post \S+/api/v1/nodes\S+ tls: failed to verify certificate: x509: certificate signed by unknown",
            id="wrong CA",
        ),
        pytest.param(
            lambda cluster: cluster.node_kubeconfig(NODE, timedelta(hours=-1)),
            NOT_ACCEPTED + rf"'{USER}', which expired on 20\d\d-\S+Z",
            id="expired",
        ),
        pytest.param(
            lambda cluster: cluster.node_kubeconfig("somebody-else"),
            rf"nodes \S+{NODE}\S+ is forbidden: User \S+system:node:somebody-else\S+ cannot ",
            id="another node's",
        ),
        pytest.param(
            lambda cluster: cluster.user_kubeconfig("ann"),
            rf"nodes \S+{NODE}\S+ is forbidden: User \S+ann\S+ cannot get resource \S+nodes\S+ in API group ",
            id="nobody's",
        ),
        pytest.param(
            lambda cluster: cluster.token_kubeconfig("nobody", "secret"),
            r"Unauthorized: Post \S+/api/v1/nodes\S+ the server does not accept the bearer token",
            id="wrong token",
        ),
    ],
)
def test_who_is_refused_is_told_and_tried_again(
    cluster: Cluster, start: Start, make: Callable[[Cluster], Path], told: str
) -> None:
    """A refused kubelet logs each failed attempt to register once, and waits longer before each new attempt.

    Static pods run nevertheless.
    """
    kubelet = start(make(cluster))
    wait_for_static_pod(kubelet)
    kubelet.wait_for_log("Unable to register node with API server", count=3)
    log = kubelet.logged()
    lines = [line for line in log if "Unable to register node with API server" in line]
    for line in lines:
        assert re.search(told, line), line
    attempts = [line for line in log if "Attempting to register node" in line]
    assert len(attempts) - len(lines) in (0, 1)
    times = [_time(line) for line in attempts]
    pauses = [after - before for before, after in itertools.pairwise(times)]
    longest = kubelet_node_status.REGISTRATION_BACK_OFF_MAX
    assert all(pause >= min(0.2 * 2**number, longest) for number, pause in enumerate(pauses)), pauses


def _time(line: str) -> float:
    """Return the time of a log line, in seconds since midnight."""
    hours, minutes, seconds = line.split()[1].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def test_kubeconfig_that_names_a_missing_file(cluster: Cluster, start: Start, tmp_path: Path) -> None:
    """A kubeconfig that names a missing file ends the kubelet, but not its pods.

    The kubelet exits so that its supervisor starts it again.
    """
    kubeconfig = cluster.node_kubeconfig(NODE)
    good = kubeconfig.read_bytes()
    kubelet = start(kubeconfig)
    wait_for_ready(kubelet, cluster)
    container = wait_for_static_pod(kubelet)
    kubelet.kill()
    document = json.loads(good)
    document["users"][0]["user"] = {"client-certificate": "/nowhere/node.crt", "client-key": "/nowhere/node.key"}
    kubeconfig.write_text(json.dumps(document))
    kubelet.spawn()

    assert kubelet.wait_for_exit(30) == 1
    (line,) = kubelet.logged("Error: ")
    for told in (str(kubeconfig), "client-cert /nowhere/node.crt", "client-key /nowhere/node.key", "no such file"):
        assert told in line

    kubeconfig.write_bytes(good)
    kubelet.spawn()
    kubelet.wait_for_log("Successfully registered node", count=2)
    assert wait_for_static_pod(kubelet) == container


def test_what_is_forbidden_is_told_and_tried_again(cluster: Cluster, start: Start) -> None:
    """The kubelet logs each refusal of a forbidden call at most once, and catches up when the call is allowed again."""
    kubelet = start(
        cluster.node_kubeconfig(NODE), {"nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "1s"}
    )
    wait_for_ready(kubelet, cluster)
    run_pod(kubelet, cluster, "runs")
    run_pod(kubelet, cluster, "is-deleted")
    container, static = cluster_container(kubelet, "runs"), wait_for_static_pod(kubelet)
    refused: dict[str, Filter] = {
        "nodes": {"verb": "patch", "resource": "nodes"},
        "pods/status": {"verb": "patch", "resource": "pods", "subresource": "status"},
        "pod deletions": {"verb": "delete", "resource": "pods"},
        "events": {"resource": "events"},
    }
    faults = {
        what: cluster.faults.status(403, message=f'User "{USER}" must not do this to {what}', **selected)
        for what, selected in refused.items()
    }
    create_pod(cluster, "new")
    cluster.store.delete("pods", "is-deleted", "default")
    for what in ("nodes", "events", "pods/status", "pod deletions"):
        kubelet.wait_for_log(f"must not do this to {what}")
        if what == "pods/status":
            faults[what].end()  # The kubelet deletes no pod whose last status it could not report.
    kubelet.wait_for_condition("the new pod runs", lambda: running(kubelet, "new"))
    assert (cluster_container(kubelet, "runs"), wait_for_static_pod(kubelet)) == (container, static)
    for what, fault in faults.items():
        fault.end()
        lines = kubelet.logged(f"must not do this to {what}")
        assert all(USER in line for line in lines)
        assert len(lines) <= fault.hits

    wait_for_phase(kubelet, cluster, "new")
    kubelet.wait_for_condition(
        "the deleted pod is gone",
        lambda: "is-deleted" not in {each["metadata"]["name"] for each in cluster.store.list("pods")},
    )
    assert cluster_container(kubelet, "runs") == container
