"""Run a cluster without nodes: an API server with authentication, certificates, and the kubelet's controllers.

    with cluster.Cluster(directory) as c:
        subprocess.run(["kubectl", "--kubeconfig", c.admin_kubeconfig, "get", "nodes"])
        start_kubelet(kubeconfig=c.node_kubeconfig("node-1"))

The module is also a program, which runs a cluster until SIGTERM:

    python -m framework.apiserver.cluster --directory DIR [--port N]
"""

from __future__ import annotations

import argparse
import base64
import json
import signal
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from . import authentication, certificates, controllers, faults, metrics, tokens
from .admission import Plugins
from .authorization import AccessReviews, ClusterAuthorizer
from .controllers import base
from .interfaces import Controller, Store, UserInfo, VirtualResource
from .server import APIServer

BOOTSTRAP_TOKEN = "abcdef.0123456789abcdef"
_SERVER_NAMES = ("localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_YEAR = timedelta(days=365)


@dataclass
class Options:
    """Configure a cluster.

    - `host`, `port`: the address to listen on. Port 0 selects a free one.
    - `names`: additional host names and addresses in the server's certificate.
    - `mount_tokens`: pods get a volume with the token of their service account, as in real clusters.
    - `shortest_token`: the lifetime, in seconds, of service account tokens that were requested with the minimum of ten
      minutes; 0 keeps ten minutes.
    - `keep`: save the objects in the directory when the cluster stops, and load them when it starts.
    - `node_grace_period`: the number of seconds that a node may be silent. None means forever.
    - `quarantine`: the number of seconds after which the pods of a deleted node are garbage-collected.
    """

    host: str = "127.0.0.1"
    port: int = 0
    names: Sequence[str] = ()
    mount_tokens: bool = False
    shortest_token: int = 0
    keep: bool = False
    node_grace_period: float | None = 50.0
    quarantine: float = 40.0
    static_tokens: dict[str, UserInfo] = field(default_factory=dict)


class Cluster:
    """Run a cluster within a `with` block. It writes all files into its directory.

    - `server`, `store`, `url`: the API server, its objects, its address.
    - `faults`, `requests`: the faults of the server, and the requests that it received.
    - `authority`, `authorizer`, `authenticator`: the certificate authority, the permissions, and the known users.
    - `signing.policy`: how the cluster treats certificate signing requests.
    - `attach_detach.attach`: how the cluster treats volumes that must be attached.
    """

    def __init__(self, directory: Path | str, options: Options | None = None) -> None:
        self.directory = Path(directory)
        self.options = options or Options()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.authority = certificates.CertificateAuthority.load_or_create(self.directory)
        self.ca_file = self.directory / "kubernetes-ca.crt"
        self.faults = faults.Faults(lambda: int(self.server.store.resource_version))
        self.requests = faults.RequestLog()
        self.authorizer = ClusterAuthorizer(lambda: self.store)
        signer = tokens.TokenSigner.load_or_create(self.directory)
        self.authenticator = authentication.Authenticator(lambda: self.store, signer, self.options.static_tokens)
        self.admission = Plugins(lambda: self.store, self.options.mount_tokens)
        self.namespaces = controllers.Namespaces(self.authority.pem)
        self.signing = controllers.Signing(self.authority, self.authorizer)
        self.node_lifecycle = controllers.NodeLifecycle(self.options.node_grace_period)
        self.garbage = controllers.GarbageCollector()
        self.pod_garbage = controllers.PodGarbageCollector(self.options.quarantine)
        self.scheduler = controllers.Scheduler()
        self.volume_binder = controllers.VolumeBinder()
        self.ephemeral_claims = controllers.EphemeralClaims()
        self.attach_detach = controllers.AttachDetach()
        self.disruption = controllers.Disruption()
        self.server = self._server()

    def _server(self) -> APIServer:
        names = [*_SERVER_NAMES, *self.options.names]
        serving = self.authority.server_pair(names).write(self.directory, "apiserver")
        kubelets = self.authority.client_pair("kube-apiserver-kubelet-client", [authentication.MASTERS])
        to_kubelets = certificates.client_context(*kubelets.write(self.directory, "kubelet-client"))
        running: list[Controller] = [
            self.namespaces,
            self.signing,
            self.node_lifecycle,
            self.garbage,
            self.pod_garbage,
            self.scheduler,
            self.volume_binder,
            self.ephemeral_claims,
            self.attach_detach,
            self.disruption,
        ]
        return APIServer(
            host=self.options.host,
            port=self.options.port,
            ssl_context=certificates.server_context(*serving, self.ca_file),
            kubelet_ssl_context=to_kubelets,
            authenticator=self.authenticator,
            authorizer=self.authorizer,
            admission=self.admission,
            faults=self.faults,
            virtual=self._virtual(),
            aggregated={metrics.GROUP: metrics.MetricsServer(lambda: self.store, metrics.kubelet_scraper(to_kubelets))},
            controllers=running,
            audit=self.requests,
        )

    def _virtual(self) -> dict[str, VirtualResource]:
        reviews = AccessReviews(self.authorizer)
        shortest = self.options.shortest_token
        requests = authentication.TokenRequests(self.authenticator, self.admission, shortest=shortest)
        return {
            "serviceaccounts/token": requests,
            "tokenreviews": authentication.TokenReviews(self.authenticator),
            "selfsubjectreviews": authentication.self_subject_reviews,
            "subjectaccessreviews": reviews,
            "localsubjectaccessreviews": reviews,
            "selfsubjectaccessreviews": reviews,
        }

    def start(self) -> None:
        """Listen, and start the controllers. Raise OSError if the port is in use."""
        if self.options.keep and self._state.exists():
            self.server.load(self._state)
        self.server.start()

    def stop(self) -> None:
        """End all threads and connections. After another start the cluster has the same objects and the same port."""
        self.faults.end_all()
        self.server.stop()
        if self.options.keep:
            self.server.save(self._state)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _state(self) -> Path:
        return self.directory / "objects.json"

    @property
    def store(self) -> Store:
        return self.server.store

    @property
    def url(self) -> str:
        return self.server.url

    # The kubeconfigs contain the server's port, so they need a port in the options or a started server.

    @property
    def admin_kubeconfig(self) -> Path:
        """Write a kubeconfig of a user with all permissions."""
        return self.user_kubeconfig("kubernetes-admin", [authentication.MASTERS])

    def user_kubeconfig(self, user: str, groups: Sequence[str] = (), lifetime: timedelta = _YEAR) -> Path:
        """Write a kubeconfig with a new client certificate. With a negative lifetime the certificate has expired."""
        return self._kubeconfig(user, self.authority.client_pair(user, groups, lifetime))

    def node_kubeconfig(self, node: str, lifetime: timedelta = _YEAR) -> Path:
        """Write a kubeconfig with a new client certificate of a node."""
        return self._kubeconfig(f"system:node:{node}", self.authority.node_pair(node, lifetime))

    def bootstrap_kubeconfig(self, token: str = BOOTSTRAP_TOKEN, extra_groups: Iterable[str] = ()) -> Path:
        """Write a kubeconfig with a bootstrap token, and store the token so that the server accepts it."""
        token_id, _, token_secret = token.partition(".")
        data = {
            "token-id": token_id,
            "token-secret": token_secret,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": ",".join(extra_groups),
        }
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system"},
            "type": "bootstrap.kubernetes.io/token",
            "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items() if value},
        }
        base.create_unless_exists(self.store, "secrets", secret)
        return self._kubeconfig("kubelet-bootstrap", token=token)

    def token_kubeconfig(self, user: str, token: str) -> Path:
        """Write a kubeconfig with a bearer token."""
        return self._kubeconfig(user, token=token)

    def _kubeconfig(self, user: str, pair: certificates.KeyPair | None = None, token: str = "") -> Path:
        path = self.directory / f"{user.replace(':', '-')}.kubeconfig"
        certificates.write_private(path, certificates.kubeconfig(self.url, self.authority.pem, user, pair, token))
        return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run an API server and its controllers until SIGTERM or Ctrl-C.")
    parser.add_argument(
        "--directory", type=Path, required=True, help="Keep certificates and objects in this directory."
    )
    parser.add_argument("--port", type=int, default=0, help="Listen on this port; 0 selects a free one.")
    parser.add_argument("--mount-tokens", action="store_true", help="Mount the service account's token into pods.")
    parser.add_argument("--shortest-token", type=int, default=0, help="Use this lifetime for ten-minute tokens.")
    given = parser.parse_args(arguments)
    options = Options(port=given.port, mount_tokens=given.mount_tokens, shortest_token=given.shortest_token, keep=True)
    cluster = Cluster(given.directory, options)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with cluster:
        written = {
            "server": cluster.url,
            "admin": str(cluster.admin_kubeconfig),
            "bootstrap": str(cluster.bootstrap_kubeconfig()),
        }
        print(json.dumps(written), flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
