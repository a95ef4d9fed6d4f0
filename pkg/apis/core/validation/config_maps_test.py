"""Test the validation of config maps, secrets, claims and persistent volumes."""

from __future__ import annotations

from typing import Any

import pytest

from pkg.api.core import v1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import yaml
from pkg.apis.core import validation

META = {"name": "x", "namespace": "ns"}
LIMIT = v1.MAX_SECRET_SIZE


def config_map(**fields: Any) -> list[str]:
    return [
        str(err) for err in validation.validate_config_map(codec.convert({"metadata": META} | fields, v1.ConfigMap))
    ]


def secret(type_: str = "Opaque", annotations: dict[str, str] | None = None, **data: str) -> list[str]:
    """Return the errors of a secret, whose keys have _ for characters that Python names cannot contain."""
    named = {key.replace("__", ".").replace("_", "-"): value.encode() for key, value in data.items()}
    found = codec.convert({"metadata": META | {"annotations": annotations or {}}, "type": type_}, v1.Secret)
    found.data = named
    return [str(err) for err in validation.validate_secret(found)]


def test_good_config_maps() -> None:
    assert config_map() == []
    assert config_map(data={"a.b-c_d": "x" * LIMIT}) == []
    assert config_map(data={"a": "b"}, binaryData={"c": "AA=="}) == []


BAD_CONFIG_MAPS: list[tuple[str, dict[str, Any], str]] = [
    ("no name", {"metadata": {"namespace": "ns"}}, "metadata.name: Required value"),
    ("bad namespace", {"metadata": {"name": "x", "namespace": "a_b"}}, "metadata.namespace: Invalid value"),
    ("key with slash", {"data": {"a/b": ""}}, "data[a/b]: Invalid value"),
    ("dots alone", {"data": {"..": ""}}, "data[..]: Invalid value"),
    ("dots at the beginning", {"binaryData": {"..a": ""}}, "binaryData[..a]: Invalid value"),
    ("long key", {"data": {"a" * 254: ""}}, "must be no more than 253 characters"),
    ("in both", {"data": {"a": ""}, "binaryData": {"a": ""}}, "data[a]: Invalid value"),
    ("too large", {"data": {"a": "x" * LIMIT, "b": "y"}}, "data: Too long"),
    ("too large in bytes", {"data": {"a": "é" * (LIMIT // 2 + 1)}}, "data: Too long"),
]


@pytest.mark.parametrize(
    ("fields", "message"), [row[1:] for row in BAD_CONFIG_MAPS], ids=[r[0] for r in BAD_CONFIG_MAPS]
)
def test_bad_config_maps(fields: dict[str, Any], message: str) -> None:
    [err] = config_map(**fields)
    assert message in err


ACCOUNT = {v1.SERVICE_ACCOUNT_NAME_KEY: "a"}


def test_good_secrets() -> None:
    assert secret("") == secret(data_1="bar") == secret("my/type") == []
    assert secret(v1.SECRET_TYPE_SERVICE_ACCOUNT_TOKEN, ACCOUNT) == []
    assert secret(v1.SECRET_TYPE_DOCKERCFG, __dockercfg='{"https://x": {}}') == []
    assert secret(v1.SECRET_TYPE_DOCKER_CONFIG_JSON, __dockerconfigjson="{}") == []
    assert secret(v1.SECRET_TYPE_BASIC_AUTH, username="") == secret(v1.SECRET_TYPE_BASIC_AUTH, password="p") == []
    assert secret(v1.SECRET_TYPE_SSH_AUTH, ssh_privatekey="k") == []
    assert secret(v1.SECRET_TYPE_TLS, tls__crt="", tls__key="") == []


ODD: Any = {"a b": "x"}
BAD_SECRETS: list[tuple[str, list[str], list[str]]] = [
    ("bad key", secret(**ODD), ["data[a b]: Invalid value"]),
    ("too large", secret(a="x" * (LIMIT + 1)), ["data: Too long: may not be more than 1048576 bytes"]),
    (
        "token of nobody",
        secret(v1.SECRET_TYPE_SERVICE_ACCOUNT_TOKEN),
        ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
    ),
    ("no dockercfg", secret(v1.SECRET_TYPE_DOCKERCFG), ["data[.dockercfg]: Required value"]),
    (
        "dockercfg that is no JSON",
        secret(v1.SECRET_TYPE_DOCKERCFG, __dockercfg="sesame"),
        ['data[.dockercfg]: Invalid value: "<secret contents redacted>"'],
    ),
    (
        "JSON that is no object",
        secret(v1.SECRET_TYPE_DOCKER_CONFIG_JSON, __dockerconfigjson='["sesame"]'),
        ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>"'],
    ),
    (
        "no user",
        secret(v1.SECRET_TYPE_BASIC_AUTH),
        ["data[username]: Required value", "data[password]: Required value"],
    ),
    ("empty key", secret(v1.SECRET_TYPE_SSH_AUTH, ssh_privatekey=""), ["data[ssh-privatekey]: Required value"]),
    ("no TLS key", secret(v1.SECRET_TYPE_TLS, tls__crt="c"), ["data[tls.key]: Required value"]),
]


@pytest.mark.parametrize(("errs", "messages"), [row[1:] for row in BAD_SECRETS], ids=[row[0] for row in BAD_SECRETS])
def test_bad_secrets(errs: list[str], messages: list[str]) -> None:
    assert len(errs) == len(messages) and all(map(str.startswith, errs, messages))
    assert "sesame" not in str(errs)


def volume(text: str) -> list[str]:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}} | yaml.to_builtins(text)
    found = codec.convert({"metadata": {"name": "x"}, "spec": spec}, v1.PersistentVolume)
    return [str(err) for err in validation.validate_persistent_volume(found)]


def test_good_volumes() -> None:
    assert volume("{hostPath: {path: /srv}}") == volume("{nfs: {server: a, path: /}, volumeMode: Block}") == []


BAD_VOLUMES = [
    ("{}", "spec: Required value: must specify a volume type"),
    (
        "{hostPath: {path: /a}, nfs: {server: a, path: /}}",
        "spec.nfs: Forbidden: may not specify more than 1 volume type",
    ),
    ("{hostPath: {path: ''}}", "spec.hostPath.path: Required value"),
    ("{hostPath: {path: /a/../b}}", "spec.hostPath.path: Invalid value"),
    ("{hostPath: {path: /a}, accessModes: []}", "spec.accessModes: Required value"),
    ("{hostPath: {path: /a}, capacity: {}}", "spec.capacity[storage]: Required value"),
    ("{hostPath: {path: /a}, capacity: {storage: 0}}", "spec.capacity[storage]: Invalid value"),
    ("{hostPath: {path: /a}, volumeMode: Tape}", "spec.volumeMode: Unsupported value"),
]


@pytest.mark.parametrize(("text", "message"), BAD_VOLUMES)
def test_bad_volumes(text: str, message: str) -> None:
    [err] = volume(text)
    assert err.startswith(message)


def test_claims_have_names() -> None:
    claim = codec.convert(
        {
            "metadata": {"name": "No"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": 1}}},
        },
        v1.PersistentVolumeClaim,
    )
    errs = [str(err) for err in validation.validate_persistent_volume_claim(claim)]
    assert [err.split(":")[0] for err in errs] == ["metadata.name", "metadata.namespace"]
