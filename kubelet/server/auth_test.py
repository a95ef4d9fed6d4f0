"""Test how requests to the server map to subresources."""

from __future__ import annotations

import pytest

from kubelet.server import auth
from pkg import features
from pkg.apiserver.authentication import user as userinfo
from pkg.apiserver.authorization import authorizer
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.golang.http.testing import request

USER = userinfo.Info("phibby")


@pytest.mark.parametrize(
    ("subpath", "path", "expected"),
    [
        ("", "", True),
        ("foo", "foo", True),
        ("/foo", "/foo", True),
        ("/foo/", "/foo", True),
        ("/foo/bar", "/foo", True),
        ("/foo", "/", True),
        ("/foo/", "/", True),
        ("/foo/bar", "/", True),
        ("/foo", "/foo/", True),
        ("/foo/", "/foo/", True),
        ("/foo/bar", "/foo/", True),
        ("/foo", "/bar", False),
        ("/foo", "/foobar", False),
        ("/foobar", "/foo", False),
    ],
)
def test_is_subpath(subpath: str, path: str, expected: bool) -> None:
    assert auth.is_subpath(subpath, path) == expected


# The values are the subresources without and with fine-grained authorization.
PATHS = {
    "/attach/{podNamespace}/{podID}/{containerName}": (["proxy"], ["proxy"]),
    "/attach/{podNamespace}/{podID}/{uid}/{containerName}": (["proxy"], ["proxy"]),
    "/checkpoint/{podNamespace}/{podID}/{containerName}": (["checkpoint"], ["checkpoint"]),
    "/configz": (["proxy"], ["configz", "proxy"]),
    "/containerLogs/{podNamespace}/{podID}/{containerName}": (["proxy"], ["proxy"]),
    "/debug/flags/v": (["proxy"], ["proxy"]),
    "/debug/pprof/profile": (["proxy"], ["proxy"]),
    "/debug/syncloop": (["proxy"], ["proxy"]),
    "/exec/{podNamespace}/{podID}/{containerName}": (["proxy"], ["proxy"]),
    "/flagz": (["configz"], ["configz"]),
    "/healthz": (["proxy"], ["healthz", "proxy"]),
    "/healthz/log": (["proxy"], ["healthz", "proxy"]),
    "/healthz/syncloop": (["proxy"], ["healthz", "proxy"]),
    "/healthzz": (["proxy"], ["proxy"]),
    "/logs": (["log"], ["log"]),
    "/logs/{logpath}": (["log"], ["log"]),
    "/metrics": (["metrics"], ["metrics"]),
    "/metrics/cadvisor": (["metrics"], ["metrics"]),
    "/metrics/slis": (["metrics"], ["metrics"]),
    "/pods": (["proxy"], ["pods", "proxy"]),
    "/pods/": (["proxy"], ["pods", "proxy"]),
    "/portForward/{podNamespace}/{podID}": (["proxy"], ["proxy"]),
    "/run/{podNamespace}/{podID}/{containerName}": (["proxy"], ["proxy"]),
    "/runningpods": (["proxy"], ["pods", "proxy"]),
    "/runningpods/": (["proxy"], ["pods", "proxy"]),
    "/stats": (["stats"], ["stats"]),
    "/stats/summary": (["stats"], ["stats"]),
    "/statusz": (["statusz"], ["statusz"]),
    "/": (["proxy"], ["proxy"]),
    "/unheard/of": (["proxy"], ["proxy"]),
}
VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "HEAD": ""}


@pytest.mark.parametrize("fine_grained", [False, True])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", VERBS)
def test_get_request_attributes(method: str, path: str, fine_grained: bool) -> None:
    getter = auth.NodeAuthorizerAttributesGetter("test")
    with set_feature_gate_during_test(features.feature_gate, features.KUBELET_FINE_GRAINED_AUTHZ, fine_grained):
        attributes = getter.get_request_attributes(USER, request(method, path))
    assert attributes == [
        authorizer.Attributes(
            user=USER,
            verb=VERBS[method],
            api_version="v1",
            resource="nodes",
            subresource=subresource,
            name="test",
            resource_request=True,
            path=path,
        )
        for subresource in PATHS[path][fine_grained]
    ]
