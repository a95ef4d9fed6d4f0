"""A cluster without nodes: an API server with identity, certificates and the controllers that a kubelet needs.

    with cluster.Cluster(directory) as c:
        subprocess.run(["kubectl", "--kubeconfig", c.admin_kubeconfig, "get", "nodes"])
        start_kubelet(kubeconfig=c.node_kubeconfig("node-1"))

As a program it runs a cluster until it is told to end:

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
    """How a cluster differs from what a kubelet usually meets.

    - `host`, `port`: where to listen; port 0 takes a free one.
    - `names`: more host names and addresses that the server's certificate is for.
    - `mount_tokens`: give pods a volume with their service account's token, as real clusters do.
    - `shortest_token`: seconds that a token of a service account lives for which ten minutes, the shortest life, were
      asked; 0 for just that.
    - `keep`: save the objects in the directory when it stops, and load them when it starts.
    - `node_grace_period`: for how many seconds a node may be silent; None for ever.
    - `quarantine`: after how many seconds the pods of a node that is gone are lost.
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
    """A context manager; all that it writes is in its directory.

    - `server`, `store`, `url`: the API server, its objects, its address.
    - `faults`, `requests`: what to let go wrong, and what was asked.
    - `authority`, `authorizer`, `authenticator`: the CA, what is granted to whom, who is known.
    - `signing.policy`: what becomes of certificate signing requests.
    - `attach_detach.attach`: what becomes of volumes that are to be attached.
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

    # Its life.

    def start(self) -> None:
        """Listen, and start the controllers. Raises OSError if the port is taken."""
        if self.options.keep and self._state.exists():
            self.server.load(self._state)
        self.server.start()

    def stop(self) -> None:
        """End all threads and connections. A second start goes on with the same objects on the same port."""
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

    # Credentials. They name the server's port, so it has to be known: after the start, or by the options.

    @property
    def admin_kubeconfig(self) -> Path:
        """A kubeconfig of a user who may do everything."""
        return self.user_kubeconfig("kubernetes-admin", [authentication.MASTERS])

    def user_kubeconfig(self, user: str, groups: Sequence[str] = (), lifetime: timedelta = _YEAR) -> Path:
        """A kubeconfig with a new client certificate; a negative lifetime makes one that has expired."""
        return self._kubeconfig(user, self.authority.client_pair(user, groups, lifetime))

    def node_kubeconfig(self, node: str, lifetime: timedelta = _YEAR) -> Path:
        """A kubeconfig with a new client certificate of a node."""
        return self._kubeconfig(f"system:node:{node}", self.authority.node_pair(node, lifetime))

    def bootstrap_kubeconfig(self, token: str = BOOTSTRAP_TOKEN, extra_groups: Iterable[str] = ()) -> Path:
        """A kubeconfig with a bootstrap token, which becomes good for something by this."""
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
        """A kubeconfig with a bearer token."""
        return self._kubeconfig(user, token=token)

    def _kubeconfig(self, user: str, pair: certificates.KeyPair | None = None, token: str = "") -> Path:
        path = self.directory / f"{user.replace(':', '-')}.kubeconfig"
        certificates.write_private(path, certificates.kubeconfig(self.url, self.authority.pem, user, pair, token))
        return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run an API server and its controllers until SIGTERM or Ctrl-C.")
    parser.add_argument("--directory", type=Path, required=True, help="where to keep certificates and objects")
    parser.add_argument("--port", type=int, default=0, help="where to listen; any free port if there is none")
    parser.add_argument("--mount-tokens", action="store_true", help="give pods their service account's token")
    parser.add_argument("--shortest-token", type=int, default=0, help="seconds of a life of ten minutes")
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
