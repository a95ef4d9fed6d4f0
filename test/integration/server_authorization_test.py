"""Test which clients may request what from the kubelet's server: every path, by every kind of client, over TLS.

The kubelet asks the API server who a token belongs to and what a user may do. Roles in the API server grant the
permissions, as in any cluster.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from framework.apiserver.certificates import CertificateAuthority, KeyPair
from framework.apiserver.cluster import Cluster, Options
from framework.apiserver.interfaces import UserInfo
from framework.hollow_node import HollowNode
from framework.ports import free_port
from framework.waiting import wait_for

NODE = "node-1"
_EXPIRED = timedelta(hours=-1)
_TIMEOUT = 30.0

# Each role grants these pairs of a verb and a subresource of nodes.
GRANTS = {
    "metrics-reader": {("get", "metrics"), ("get", "stats")},
    "exec-user": {("get", "proxy"), ("create", "proxy")},
    "fine-reader": {("get", "pods"), ("get", "healthz"), ("get", "configz")},
    "log-reader": {("get", "log")},
    "operator": {("create", "checkpoint"), ("get", "statusz"), ("update", "proxy")},
}
EVERYTHING = "everything"

# Each request is allowed by a permission for any one of its subresources.
REQUESTS = {
    ("GET", "/healthz"): ("healthz", "proxy"),
    ("GET", "/healthz/log"): ("healthz", "proxy"),
    ("GET", "/healthz/ping"): ("healthz", "proxy"),
    ("GET", "/healthz/syncloop"): ("healthz", "proxy"),
    ("GET", "/pods"): ("pods", "proxy"),
    ("GET", "/runningpods/"): ("pods", "proxy"),
    ("GET", "/configz"): ("configz", "proxy"),
    ("GET", "/flagz"): ("configz",),
    ("GET", "/statusz"): ("statusz",),
    ("GET", "/metrics"): ("metrics",),
    ("GET", "/metrics/cadvisor"): ("metrics",),
    ("GET", "/metrics/resource"): ("metrics",),
    ("GET", "/metrics/probes"): ("metrics",),
    ("GET", "/metrics/slis"): ("metrics",),
    ("GET", "/stats/summary"): ("stats",),
    ("GET", "/stats/"): ("stats",),
    ("GET", "/logs/"): ("log",),
    ("GET", "/logs/no/such/file"): ("log",),
    ("GET", "/containerLogs/default/pod/container"): ("proxy",),
    ("POST", "/run/default/pod/container?cmd=ls"): ("proxy",),
    ("POST", "/run/default/pod/uid/container?cmd=ls"): ("proxy",),
    ("GET", "/exec/default/pod/container?command=ls&output=1"): ("proxy",),
    ("POST", "/exec/default/pod/container?command=ls&output=1"): ("proxy",),
    ("POST", "/exec/default/pod/uid/container?command=ls&output=1"): ("proxy",),
    ("GET", "/attach/default/pod/container?output=1"): ("proxy",),
    ("POST", "/attach/default/pod/uid/container?output=1"): ("proxy",),
    ("GET", "/portForward/default/pod?port=80"): ("proxy",),
    ("POST", "/portForward/default/pod/uid"): ("proxy",),
    ("POST", "/checkpoint/default/pod/container"): ("checkpoint",),
    ("GET", "/debug/pprof/"): ("proxy",),
    ("GET", "/debug/pprof/cmdline"): ("proxy",),
    ("PUT", "/debug/flags/v"): ("proxy",),
    ("GET", "/debug/syncloop"): ("proxy",),
    ("GET", "/debug/syncloop.json"): ("proxy",),
    ("GET", "/debug/syncloop/explain"): ("proxy",),
    ("GET", "/debug/syncloop/evictions"): ("proxy",),
    ("GET", "/debug/syncloop/manifests"): ("proxy",),
    # The server does not serve these methods for these paths.
    ("DELETE", "/pods"): ("pods", "proxy"),
    ("POST", "/containerLogs/default/pod/container"): ("proxy",),
}
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "DELETE": "delete"}


@dataclass(frozen=True)
class Client:
    """Describe a client; `may` is EVERYTHING, a key of GRANTS, or empty.

    `status` is the HTTP status of the client's refused requests.
    """

    name: str = ""
    pair: KeyPair | None = None
    token: str = ""
    status: int = 403
    may: str = ""

    def is_allowed(self, method: str, target: str) -> bool:
        wanted = {(VERBS[method], subresource) for subresource in REQUESTS[method, target]}
        return self.may == EVERYTHING or bool(wanted & GRANTS.get(self.may, set()))


class Connections:
    """Open connections to one kubelet. Each client sends its requests over a connection of its own."""

    def __init__(self, port: int, directory: Path) -> None:
        self._port = port
        self._directory = directory

    def connect(self, client: Client) -> http.client.HTTPSConnection:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if client.pair is not None:
            context.load_cert_chain(*client.pair.write(self._directory, "client"))
        return http.client.HTTPSConnection("127.0.0.1", self._port, context=context, timeout=_TIMEOUT)

    def ask(self, client: Client, method: str, target: str) -> tuple[int, str]:
        with closing(self.connect(client)) as connection:
            return request(connection, client, method, target)


def request(connection: http.client.HTTPSConnection, client: Client, method: str, target: str) -> tuple[int, str]:
    """Return the status and the text of the response."""
    headers = {"Authorization": f"Bearer {client.token}"} if client.token else {}
    body = b"2" if method in ("PUT", "POST") else None
    connection.request(method, target, body, headers)
    response = connection.getresponse()
    return response.status, response.read().decode(errors="replace")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    tokens = {
        "token-of-the-metrics-reader": UserInfo("system:serviceaccount:monitoring:prometheus"),
        "token-of-nobody-special": UserInfo("ann", "", ("cooks",)),
        "token-of-the-admin": UserInfo("root", "", ("system:masters",)),
    }
    with Cluster(tmp_path_factory.mktemp("cluster"), Options(static_tokens=tokens)) as cluster:
        for role, allowed in GRANTS.items():
            _grant(cluster, role, allowed)
        yield cluster


def _grant(cluster: Cluster, role: str, allowed: set[tuple[str, str]]) -> None:
    rules = [{"apiGroups": [""], "verbs": [verb], "resources": [f"nodes/{each}"]} for verb, each in sorted(allowed)]
    subjects = [{"kind": "Group", "name": f"{role}s"}]
    if role == "metrics-reader":
        subjects.append({"kind": "ServiceAccount", "namespace": "monitoring", "name": "prometheus"})
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": role}}
    cluster.store.create("clusterroles", {**kind, "kind": "ClusterRole", "rules": rules})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    binding = {**kind, "kind": "ClusterRoleBinding", "roleRef": ref, "subjects": subjects}
    cluster.store.create("clusterrolebindings", binding)


@pytest.fixture(scope="module")
def kubelet(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connections]:
    with ServingNode(cluster, anonymous=False) as connections:
        yield connections


class ServingNode:
    """Run a kubelet with a server. As a context manager, yield connections to it."""

    def __init__(self, cluster: Cluster, *, anonymous: bool, ca_file: Path | None = None, name: str = NODE) -> None:
        self._port = free_port()
        self._directory = cluster.directory / name
        authentication = {
            "x509": {"clientCAFile": str(ca_file or cluster.ca_file)},
            "webhook": {"enabled": True, "cacheTTL": "2m"},
            "anonymous": {"enabled": anonymous},
        }
        config = {
            "enableServer": True,
            "address": "127.0.0.1",
            "port": self._port,
            "authentication": authentication,
            "authorization": {"mode": "Webhook"},
            "enableDebuggingHandlers": True,
            "enableProfilingHandler": True,
            "enableDebugFlagsHandler": True,
            "enableSystemLogHandler": True,
        }
        self._node = HollowNode(cluster, name, config=config)

    def __enter__(self) -> Connections:
        self._node.start()
        return Connections(self._port, self._directory)

    def __exit__(self, *_: object) -> None:
        self._node.stop()


def clients(cluster: Cluster) -> list[Client]:
    issue = cluster.authority.client_pair
    stranger = CertificateAuthority.create("kubernetes")  # The cluster's own authority has the same name.
    admin = issue("admin", ["system:masters"])
    return [
        Client("nobody", status=401),
        Client("wrong CA", stranger.client_pair("admin", ["system:masters"]), status=401),
        Client("expired", issue("admin", ["system:masters"], _EXPIRED), status=401),
        Client("of a version that does not exist", _of_another_version(admin), status=401),
        Client("bad token", token="guessed", status=401),
        Client("bad token, wrong CA", stranger.client_pair("admin", ["system:masters"]), "guessed", status=401),
        Client("node", cluster.authority.node_pair("node-2")),
        Client("the node itself", cluster.authority.node_pair(NODE)),
        Client("user without a role", issue("joe")),
        Client("token of a user without a role", token="token-of-nobody-special"),
        *(Client(role, issue(f"some-{role}", [f"{role}s"]), may=role) for role in GRANTS),
        Client("metrics reader by token", token="token-of-the-metrics-reader", may="metrics-reader"),
        Client("good token, wrong CA", stranger.client_pair("x"), "token-of-the-metrics-reader", may="metrics-reader"),
        Client("admin", admin, may=EVERYTHING),
        Client("admin by token", token="token-of-the-admin", may=EVERYTHING),
        Client("admin with a bad token", admin, "guessed", may=EVERYTHING),
    ]


def _of_another_version(pair: KeyPair) -> KeyPair:
    """Return a certificate that OpenSSL accepts although no program can decode it: its version does not exist."""
    der = ssl.PEM_cert_to_DER_cert(pair.certificate.decode())
    version_3, version_9 = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x09"
    return KeyPair(ssl.DER_cert_to_PEM_cert(der.replace(version_3, version_9, 1)).encode(), pair.key)


def test_everybody_on_every_path(cluster: Cluster, kubelet: Connections) -> None:
    wrong: list[str] = []
    for client in clients(cluster):
        with closing(kubelet.connect(client)) as connection:
            for method, target in REQUESTS:
                status, text = request(connection, client, method, target)
                if not _is_right(client, method, target, status, text):
                    wrong.append(f"{client.name}: {method} {target}: {status} {text[:100]!r}")
    assert not wrong, "\n" + "\n".join(wrong)


def _is_right(client: Client, method: str, target: str, status: int, text: str) -> bool:
    if client.is_allowed(method, target):
        # Only an authorized client may learn that a pod or file does not exist.
        return status not in (401, 403) and status < 500
    if status != client.status:
        return False
    if status == 401:
        return text == "Unauthorized"
    subresources = " ".join(REQUESTS[method, target])
    return text.startswith("Forbidden (user=") and text.endswith(
        f", verb={VERBS[method]}, resource=nodes, subresource(s)=[{subresources}])\n"
    )


def test_every_path_is_in_the_table(cluster: Cluster, kubelet: Connections) -> None:
    admin = Client("admin", cluster.authority.client_pair("admin", ["system:masters"]))
    status, text = kubelet.ask(admin, "GET", "/statusz")
    assert status == 200
    (served,) = re.findall(r"^Paths[:= ]+(.*)$", text, re.MULTILINE)
    assert "/exec" in served
    assert set(served.split()) <= {f"/{re.split('[/?]', target)[1]}" for _, target in REQUESTS}


NO_STREAM = "you must specify at least 1 of stdin, stdout, stderr"


@pytest.mark.parametrize(
    ("method", "target", "expected"),
    [
        ("GET", "/healthz", (200, "ok")),
        ("GET", "/nosuchpath", (404, "404 page not found\n")),
        ("GET", "/containerLogs/default/pod/container", (404, 'pod "pod" does not exist')),
        ("POST", "/checkpoint/default/pod/container", (404, "pod does not exist")),
        ("POST", "/exec/default/pod/container?command=ls&output=1", (404, "pod does not exist")),
        ("POST", "/exec/default/pod/container?command=ls", (400, NO_STREAM)),
        ("PUT", "/debug/flags/v", (200, "successfully set klog.logging.verbosity to 2\n")),
    ],
)
def test_who_may_is_answered(
    cluster: Cluster, kubelet: Connections, method: str, target: str, expected: tuple[int, str]
) -> None:
    admin = Client("admin", cluster.authority.client_pair("admin", ["system:masters"]))
    assert kubelet.ask(admin, method, target) == expected


def test_a_reader_of_pods_alone_gets_pods(cluster: Cluster, kubelet: Connections) -> None:
    reader = Client("reader", cluster.authority.client_pair("some-reader", ["fine-readers"]))
    status, text = kubelet.ask(reader, "GET", "/pods")
    assert (status, json.loads(text)["kind"]) == (200, "PodList")


def test_anonymous_users_may_what_they_are_granted(cluster: Cluster) -> None:
    with ServingNode(cluster, anonymous=True, name="node-3") as kubelet:
        nobody = Client("nobody")
        forbidden = "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
        assert kubelet.ask(nobody, "GET", "/pods") == (403, forbidden)
        assert kubelet.ask(Client(token="guessed"), "GET", "/pods") == (401, "Unauthorized")
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "anonymous"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "metrics-reader"},
            "subjects": [{"kind": "User", "name": "system:anonymous"}],
        }
        cluster.store.create("clusterrolebindings", binding)
        try:
            assert kubelet.ask(nobody, "GET", "/metrics/probes")[0] == 200
        finally:
            cluster.store.delete("clusterrolebindings", "anonymous")


def test_decisions_are_remembered_while_the_api_server_is_away(cluster: Cluster, kubelet: Connections) -> None:
    reader = Client(token="token-of-the-metrics-reader")
    other = Client("other", cluster.authority.client_pair("somebody-new"))
    assert kubelet.ask(reader, "GET", "/metrics/probes")[0] == 200
    with cluster.faults.status(403, resource="subjectaccessreviews"):
        assert kubelet.ask(reader, "GET", "/metrics/probes")[0] == 200
        status, text = kubelet.ask(other, "GET", "/metrics/probes")
    expected = "Authorization error (user=somebody-new, verb=get, resource=nodes, subresource=metrics)"
    assert (status, text) == (500, expected)


def test_authorities_are_read_again_without_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    new = CertificateAuthority.create("new")
    ca_file = tmp_path / "ca.crt"
    ca_file.write_bytes(cluster.authority.pem)
    with ServingNode(cluster, anonymous=False, ca_file=ca_file, name="node-4") as kubelet:
        old_admin = Client("old", cluster.authority.client_pair("admin", ["system:masters"]))
        new_admin = Client("new", new.client_pair("admin", ["system:masters"]))
        assert kubelet.ask(old_admin, "GET", "/pods")[0] == 200
        assert kubelet.ask(new_admin, "GET", "/pods") == (401, "Unauthorized")

        fresh = tmp_path / "fresh"
        fresh.write_bytes(new.pem)
        os.replace(fresh, ca_file)
        wait_for("the new authority", lambda: kubelet.ask(new_admin, "GET", "/pods")[0] == 200, _TIMEOUT)
        assert kubelet.ask(old_admin, "GET", "/pods") == (401, "Unauthorized")
