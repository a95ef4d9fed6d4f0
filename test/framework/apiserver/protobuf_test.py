"""Test the decoding of bodies that newer kubectls send."""

from __future__ import annotations

import pytest

from framework.apiserver import APIServer, protobuf
from framework.apiserver.client import Client


def _field(number: int, data: bytes | int) -> bytes:
    if isinstance(data, int):
        return bytes([number << 3, data])
    return bytes([number << 3 | 2, len(data)]) + data


def _body(version: str, kind: str, raw: bytes) -> bytes:
    type_meta = _field(1, version.encode()) + _field(2, kind.encode())
    return b"k8s\x00" + _field(1, type_meta) + _field(2, raw) + _field(4, b"")


_META = _field(1, _field(1, b"x") + _field(3, b"ns") + _field(11, _field(1, b"k") + _field(2, b"v")) + _field(8, b""))
_DECODED = {"name": "x", "namespace": "ns", "labels": {"k": "v"}}


@pytest.mark.parametrize(
    ("version", "kind", "raw", "obj"),
    [
        ("v1", "Namespace", _META, {"metadata": _DECODED}),
        ("v1", "ConfigMap", _META + _field(2, _field(1, b"a")), {"metadata": _DECODED, "data": {"a": ""}}),
        (
            "v1",
            "Secret",
            _field(2, _field(1, b"a") + _field(2, b"\xff")) + _field(5, 1),
            {"data": {"a": "/w=="}, "immutable": True},
        ),
        ("policy/v1", "Eviction", _field(2, _field(1, 0)), {"deleteOptions": {"gracePeriodSeconds": 0}}),
        (
            "authentication.k8s.io/v1",
            "TokenRequest",
            _field(2, _field(1, b"a") + _field(1, b"b") + _field(4, 60)),
            {"spec": {"audiences": ["a", "b"], "expirationSeconds": 60}},
        ),
    ],
)
def test_decode(version: str, kind: str, raw: bytes, obj: dict[str, object]) -> None:
    assert protobuf.decode(_body(version, kind, raw)) == {"apiVersion": version, "kind": kind, **obj}


def test_pod() -> None:
    port = _field(1, 1) + _field(2, 0) + _field(3, b"http")
    probe = _field(1, _field(2, _field(1, b"/") + _field(2, port))) + _field(2, 0) + _field(4, 5)
    limits = _field(1, _field(1, b"cpu") + _field(2, _field(1, b"100m")))
    container = (
        _field(1, b"c") + _field(2, b"image") + _field(3, b"sh") + _field(5, b"") + _field(8, limits)
        + _field(10, probe)
    )  # fmt: skip
    volume = _field(1, b"v") + _field(2, _field(2, _field(1, b"")))
    spec = _field(1, volume) + _field(2, container) + _field(4, 0) + _field(10, b"node") + _field(12, 1)
    assert protobuf.decode(_body("v1", "Pod", _META + _field(2, spec) + _field(3, b""))) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _DECODED,
        "spec": {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [
                {
                    "name": "c",
                    "image": "image",
                    "command": ["sh"],
                    "resources": {"limits": {"cpu": "100m"}},
                    "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
                }
            ],
            "terminationGracePeriodSeconds": 0,
            "nodeName": "node",
            "hostPID": True,
        },
        "status": {},
    }


@pytest.mark.parametrize("body", [b"", b"{}", _body("v1", "Namespace", _META)[:-12], b"k8s\x00\x09aaaaaaaa"])
def test_what_is_no_object(body: bytes) -> None:
    with pytest.raises(ValueError):
        protobuf.decode(body)


def test_kinds_that_are_not_understood_get_415() -> None:
    with APIServer() as api, Client(api.port) as client:
        content_type = protobuf.CONTENT_TYPE
        body = _body("v1", "Namespace", _field(1, _field(1, b"x")))
        assert client.call("POST", "/api/v1/namespaces", body, content_type=content_type)[0] == 201
        body = _body("apps/v1", "DaemonSet", b"")
        path = "/apis/apps/v1/namespaces/default/daemonsets"
        assert client.call("POST", path, body, content_type=content_type)[0] == 415
