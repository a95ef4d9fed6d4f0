"""Test a whole cluster over HTTPS, with clients and their credentials."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from framework.apiserver import certificates
from framework.apiserver.cluster import Cluster, Options
from framework.apiserver.interfaces import UserInfo
from framework.apiserver.rbac import Rule
from framework.waiting import wait_for

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT_USAGES = ["digital signature", "client auth"]


class Client:
    """Send requests with the credentials of a kubeconfig, each on a new connection."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        self.address = config["clusters"][0]["cluster"]["server"].removeprefix("https://")
        authority = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
        self.context = ssl.create_default_context(cadata=authority.decode())
        user = config["users"][0]["user"]
        self.headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        if "client-certificate-data" in user:
            certificate, key = (kubeconfig.with_suffix(suffix) for suffix in (".crt", ".key"))
            certificate.write_bytes(base64.b64decode(user["client-certificate-data"]))
            key.write_bytes(base64.b64decode(user["client-key-data"]))
            self.context.load_cert_chain(certificate, key)

    def __call__(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the code and the decoded object of the response."""
        with closing(http.client.HTTPSConnection(self.address, context=self.context, timeout=10)) as connection:
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            sent = {"Content-Type": kind, **self.headers, **(headers or {})}
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, Options(static_tokens={"known": UserInfo("ann")})) as cluster:
        yield cluster


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def test_users(cluster: Cluster) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    kubeconfigs = {
        "kubernetes-admin": cluster.admin_kubeconfig,
        "system:node:n1": cluster.node_kubeconfig("n1"),
        "ann": cluster.token_kubeconfig("ann", "known"),
        "system:bootstrap:abcdef": cluster.bootstrap_kubeconfig(),
    }
    for name, kubeconfig in kubeconfigs.items():
        code, answer = Client(kubeconfig)("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        assert (code, answer["status"]["userInfo"]["username"]) == (201, name)


def test_who_is_not_let_in(cluster: Cluster) -> None:
    expired = Client(cluster.node_kubeconfig("n1", lifetime=-timedelta(minutes=1)))
    for client in (expired, Client(cluster.token_kubeconfig("bob", "unknown"))):
        code, answer = client("GET", "/api/v1/nodes/n1")
        assert (code, answer["message"], answer["reason"]) == (401, "Unauthorized", "Unauthorized")
    code, answer = Client(cluster.token_kubeconfig("nobody", ""))("GET", "/api/v1/nodes")
    assert code == 403
    assert answer["message"] == (
        'nodes is forbidden: User "system:anonymous" cannot list resource "nodes" in API group "" at the cluster scope'
    )


def test_the_certificate_of_another_cluster(cluster: Cluster, tmp_path: Path) -> None:
    other = certificates.CertificateAuthority.create("other")
    kubeconfig = tmp_path / "stranger.kubeconfig"
    pair = other.node_pair("n1")
    kubeconfig.write_bytes(certificates.kubeconfig(cluster.url, cluster.authority.pem, "x", pair))
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        Client(kubeconfig)("GET", "/api/v1/nodes/n1")


def test_a_server_that_a_client_does_not_trust(cluster: Cluster, tmp_path: Path) -> None:
    other = certificates.CertificateAuthority.create("other")
    kubeconfig = tmp_path / "distrustful.kubeconfig"
    kubeconfig.write_bytes(certificates.kubeconfig(cluster.url, other.pem, "x"))
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(kubeconfig)("GET", "/version")


def test_a_node_bootstraps_registers_and_runs_a_pod(cluster: Cluster, tmp_path: Path) -> None:
    bootstrap = Client(cluster.bootstrap_kubeconfig())
    request, key = certificates.make_request("system:node:n1", ["system:nodes"])
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": certificates.SIGNER_KUBELET_CLIENT,
        "usages": CLIENT_USAGES,
    }
    assert bootstrap("POST", CSRS, {"metadata": {"name": "c"}, "spec": spec})[0] == 201
    status = wait_for("a certificate", lambda: bootstrap("GET", f"{CSRS}/c")[1]["status"].get("certificate"), 30)
    kubeconfig = tmp_path / "n1.kubeconfig"
    pair = certificates.KeyPair(base64.b64decode(status), key)
    kubeconfig.write_bytes(certificates.kubeconfig(cluster.url, cluster.authority.pem, "n1", pair))
    node = Client(kubeconfig)

    allocatable = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True"}
    metadata = {"metadata": {"name": "n1"}}
    registered = {**metadata, "status": {"allocatable": allocatable, "conditions": [{**ready, "status": "False"}]}}
    assert node("POST", "/api/v1/nodes", registered)[0] == 201
    admin = Client(cluster.admin_kubeconfig)
    assert admin("POST", "/api/v1/namespaces/default/pods", pod("p"))[0] == 201
    assert node("PATCH", "/api/v1/nodes/n1/status", {"status": {"conditions": [ready]}})[0] == 200

    mine = "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"
    found = wait_for("a pod", lambda: node("GET", mine)[1]["items"], 30)
    assert [each["metadata"]["name"] for each in found] == ["p"]
    running = {"status": {"phase": "Running"}}
    assert node("PATCH", "/api/v1/namespaces/default/pods/p/status", running)[0] == 200
    assert admin("GET", "/api/v1/namespaces/default/pods/p")[1]["status"]["phase"] == "Running"
    assert node("GET", "/api/v1/pods")[0] == 403


def test_what_was_asked(cluster: Cluster) -> None:
    node = Client(cluster.node_kubeconfig("n1"))
    cluster.requests.clear()
    node("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}}, {"User-Agent": "kubelet/test"})
    node("GET", "/api/v1/nodes/n1")
    node("GET", "/api/v1/nodes/n2")
    # The server logs a call after it has sent the response, which the client may see first.
    wait_for("all calls", lambda: len(cluster.requests.calls(user="system:node:n1")) == 3, 30)
    assert cluster.requests.count_by_verb(user="system:node:n1") == {"create nodes": 1, "get nodes": 2}
    assert [call.code for call in cluster.requests.calls(verb="get")] == [200, 403]
    assert cluster.requests.calls(verb="create")[0].user_agent == "kubelet/test"


def test_faults(cluster: Cluster) -> None:
    admin, node = Client(cluster.admin_kubeconfig), Client(cluster.node_kubeconfig("n1"))
    with cluster.faults.status(429, retry_after=3, user="system:node:n1") as fault:
        code, answer = node("GET", "/api/v1/nodes/n1")
        assert (code, answer["details"]["retryAfterSeconds"], fault.hits) == (429, 3, 1)
        assert admin("GET", "/api/v1/nodes")[0] == 200
    for switch in (cluster.faults.cut_connections, cluster.faults.refuse):
        with switch() as fault, pytest.raises((OSError, http.client.RemoteDisconnected)):
            admin("GET", "/api/v1/nodes")
        assert fault.hits
    assert admin("GET", "/api/v1/nodes")[0] == 200


def test_stale_lists(cluster: Cluster) -> None:
    admin = Client(cluster.admin_kubeconfig)
    path = "/api/v1/namespaces/default/configmaps"

    def names(query: str) -> set[str]:
        return {each["metadata"]["name"] for each in admin("GET", path + query)[1]["items"]}

    with cluster.faults.stale_lists(resource="configmaps"):
        admin("POST", path, {"metadata": {"name": "new"}})
        assert "new" not in names("?resourceVersion=0")
        assert "new" in names("")
    assert "new" in names("?resourceVersion=0")


def test_a_watch_is_cut(cluster: Cluster) -> None:
    admin = Client(cluster.admin_kubeconfig)
    with closing(http.client.HTTPSConnection(admin.address, context=admin.context, timeout=10)) as connection:
        connection.request("GET", "/api/v1/namespaces?watch=1", headers=admin.headers)
        answer = connection.getresponse()
        assert json.loads(answer.readline())["type"] == "ADDED"
        assert [request.resource for request in cluster.faults.watches] == ["namespaces"]
        with cluster.faults.cut_watches(resource="namespaces") as fault:
            assert fault.hits == 1
        with pytest.raises((OSError, http.client.IncompleteRead)):
            while answer.read(1):
                pass
            raise ConnectionError("the watch ended")
    wait_for("the end of the watch", lambda: not cluster.faults.watches, 30)


def test_owners_and_budgets_are_looked_after(cluster: Cluster) -> None:
    metadata = {"name": "owner", "namespace": "default"}
    owner = cluster.store.create("configmaps", {"metadata": metadata})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    child = {"name": "child", "namespace": "default", "ownerReferences": [reference]}
    cluster.store.create("configmaps", {"metadata": child})
    cluster.store.delete("configmaps", "owner", "default")
    wait_for(
        "the child is gone",
        lambda: "child" not in {each["metadata"]["name"] for each in cluster.store.list("configmaps", "default")},
        timeout=30,
    )
    budget = {"metadata": {"name": "b", "namespace": "default"}, "spec": {"minAvailable": 1}}
    cluster.store.create("poddisruptionbudgets", budget)
    wait_for(
        "the budget has a status",
        lambda: cluster.store.get("poddisruptionbudgets", "b", "default")["status"].get("desiredHealthy") == 1,
        timeout=30,
    )


def test_a_grant(cluster: Cluster) -> None:
    ann = Client(cluster.token_kubeconfig("ann", "known"))
    assert ann("GET", "/api/v1/nodes")[0] == 403
    cluster.authorizer.grant("ann", Rule(("list",), ("nodes",)))
    assert ann("GET", "/api/v1/nodes")[0] == 200


def test_tokens_are_mounted_if_asked_for(tmp_path: Path) -> None:
    with Cluster(tmp_path, Options(mount_tokens=True)) as cluster:
        created = Client(cluster.admin_kubeconfig)("POST", "/api/v1/namespaces/default/pods", pod("p"))[1]
    (volume,) = created["spec"]["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert [next(iter(source)) for source in volume["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]


def test_a_cluster_is_kept(tmp_path: Path) -> None:
    options = Options(keep=True)
    with Cluster(tmp_path, options) as cluster:
        path = "/api/v1/namespaces/default/configmaps"
        created = Client(cluster.admin_kubeconfig)("POST", path, {"metadata": {"name": "c"}, "data": {"a": "b"}})[1]
        kubeconfig = cluster.admin_kubeconfig
        options.port = cluster.server.port
    with Cluster(tmp_path, options):
        client = Client(kubeconfig)
        assert client("GET", f"{path}/c")[1] == created
        changed = client("PATCH", f"{path}/c", {"data": {"a": "c"}})[1]
        version = int(created["metadata"]["resourceVersion"])
        assert int(changed["metadata"]["resourceVersion"]) > version
        assert client("GET", f"/api/v1/configmaps?watch=1&resourceVersion={version - 1}")[1]["object"]["code"] == 410


def test_a_stopped_cluster_goes_on(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster:
        kubeconfig = cluster.admin_kubeconfig
        Client(kubeconfig)("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
    with cluster:
        assert Client(kubeconfig)("GET", "/api/v1/namespaces/default/configmaps/c")[0] == 200
