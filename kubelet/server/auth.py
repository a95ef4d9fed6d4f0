"""Authenticate and authorize the requests to the kubelet's server.

Go: pkg/kubelet/server/auth.go
"""

from __future__ import annotations

from typing import Protocol

from pkg import features, golang, klog
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication import user as userinfo
from pkg.apiserver.authorization import authorizer
from pkg.apiserver.server import dynamiccertificates
from pkg.golang import http

_API_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

# These paths have their own subresource instead of `proxy`, which allows everything.
_SUBRESOURCES = (
    ("/stats/", "stats"),
    ("/metrics", "metrics"),
    # The singular matches other subresources for logs: pods/log.
    ("/logs/", "log"),
    ("/checkpoint/", "checkpoint"),
    ("/statusz", "statusz"),
    # The flags are part of the configuration.
    ("/flagz", "configz"),
)

# These subresources can be granted alone, without everything else that `proxy` allows.
_FINE_GRAINED_SUBRESOURCES = (
    ("/pods", "pods"),
    ("/healthz", "healthz"),
    ("/configz", "configz"),
    ("/runningpods/", "pods"),
)


class NodeRequestAttributesGetter(Protocol):
    def get_request_attributes(self, user: userinfo.Info, request: http.Request) -> list[authorizer.Attributes]:
        """Return the possible attributes of the request. The client needs to be allowed only one of them."""
        ...


class KubeletAuth:
    """Authenticate and authorize requests. This class is thread-safe.

    Go: server.go, AuthInterface; one class, because there is one implementation
    """

    def __init__(
        self,
        authenticator: authenticator.Request,
        attributes_getter: NodeRequestAttributesGetter,
        authorizer: authorizer.Authorizer,
        client_ca_provider: dynamiccertificates.CAContentProvider,
    ) -> None:
        self._authenticator = authenticator
        self._attributes_getter = attributes_getter
        self._authorizer = authorizer
        self.client_ca_provider = client_ca_provider

    def authenticate_request(self, request: http.Request) -> authenticator.Response | None:
        """Return the client's identity, or None if the request has no credentials.

        Raise authenticator.AuthenticationError.
        """
        return self._authenticator.authenticate_request(request)

    def get_request_attributes(self, user: userinfo.Info, request: http.Request) -> list[authorizer.Attributes]:
        return self._attributes_getter.get_request_attributes(user, request)

    def authorize(self, ctx: golang.Context, attributes: authorizer.Attributes) -> tuple[authorizer.Decision, str]:
        """Return the decision and its reason. Raise authorizer.AuthorizationError."""
        return self._authorizer.authorize(ctx, attributes)


class NodeAuthorizerAttributesGetter:
    """Map requests to verbs on subresources of the node, with the more specific subresource first."""

    def __init__(self, node_name: str) -> None:
        self._node_name = node_name

    def get_request_attributes(self, user: userinfo.Info, request: http.Request) -> list[authorizer.Attributes]:
        verb = _API_VERBS.get(request.method, "")
        # The server redirects a path that is not clean, so the client needs the permission for the clean path.
        path = http.clean_path(request.path)
        subresources = _subresources(path)
        klog.v(5).info_s(
            "Node request attributes",
            **{"user": user.name, "verb": verb, "resource": "nodes", "subresource(s)": subresources},
        )
        return [
            authorizer.Attributes(
                user=user,
                verb=verb,
                api_version="v1",
                resource="nodes",
                subresource=subresource,
                name=self._node_name,
                resource_request=True,
                path=path,
            )
            for subresource in subresources
        ]


def _subresources(path: str) -> list[str]:
    found: list[str] = []
    if features.feature_gate.enabled(features.KUBELET_FINE_GRAINED_AUTHZ):
        found += [subresource for prefix, subresource in _FINE_GRAINED_SUBRESOURCES if is_subpath(path, prefix)][:1]
    others = [subresource for prefix, subresource in _SUBRESOURCES if is_subpath(path, prefix)][:1]
    return found + (others or ["proxy"])


def is_subpath(subpath: str, path: str) -> bool:
    """Report whether `subpath` equals `path` or lies below it."""
    path = path.removesuffix("/")
    return subpath == path or subpath.startswith(f"{path}/")
