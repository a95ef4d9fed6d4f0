"""Test unknown and duplicate fields. The expected messages are those of a real server."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from framework.apiserver import APIServer, fields
from framework.apiserver.client import JSON, JSON_PATCH, MERGE, STRATEGIC
from framework.apiserver.resources import AGGREGATED, RESOURCES

_PODS = "/api/v1/namespaces/default/pods"
_PDBS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_YAML = "application/yaml"


@pytest.fixture
def api() -> Iterator[APIServer]:
    with APIServer() as api:
        yield api


def _call(
    api: APIServer, method: str, path: str, body: str, content_type: str = JSON
) -> tuple[int, dict[str, Any], list[str]]:
    """Return the code, the decoded response and the warnings."""
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)
    try:
        connection.request(method, path, body, {"Content-Type": content_type})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers.get_all("Warning", [])
    finally:
        connection.close()


_POD = (
    '{"metadata":{"name":"p","labels":{"a":"1","a":"2"},"annotation":{}},'
    '"spec":{"containers":[{"name":"c","image":"i","comand":["x"],"env":[{"name":"A","valeu":"b"}]}],"hostNetwrok":true}}'
)
_FAULTS = [
    'duplicate field "metadata.labels.a"',
    'unknown field "metadata.annotation"',
    'unknown field "spec.containers[0].comand"',
    'unknown field "spec.containers[0].env[0].valeu"',
    'unknown field "spec.hostNetwrok"',
]


def _warnings(faults: list[str]) -> list[str]:
    quoted = (fault.replace('"', '\\"') for fault in faults)
    return [f'299 - "{fault}"' for fault in quoted]


@pytest.mark.parametrize(
    ("query", "told"), [("", _FAULTS), ("?fieldValidation=Warn", _FAULTS), ("?fieldValidation=Ignore", [])]
)
def test_unknown_fields_are_dropped(api: APIServer, query: str, told: list[str]) -> None:
    code, pod, warnings = _call(api, "POST", _PODS + query, _POD)
    assert (code, warnings) == (201, _warnings(told))
    assert pod["metadata"]["labels"] == {"a": "2"} and "annotation" not in pod["metadata"]
    assert "hostNetwrok" not in pod["spec"] and "comand" not in pod["spec"]["containers"][0]
    assert api.store.get("pods", "p", "default")["spec"]["containers"][0]["env"] == [{"name": "A"}]


def test_unknown_fields_are_refused(api: APIServer) -> None:
    code, status, warnings = _call(api, "POST", f"{_PODS}?fieldValidation=Strict", _POD)
    assert (code, status["reason"], warnings) == (400, "BadRequest", [])
    text = f"strict decoding error: {', '.join(_FAULTS)}"
    assert status["message"] == f'Pod in version "v1" cannot be handled as a Pod: {text}'


def test_there_are_three_ways_to_validate(api: APIServer) -> None:
    for method, path, options in (
        ("POST", _PODS, "CreateOptions"),
        ("PUT", f"{_PODS}/p", "UpdateOptions"),
        ("PATCH", f"{_PODS}/p", "PatchOptions"),
    ):
        content_type = MERGE if method == "PATCH" else JSON
        code, status, _ = _call(api, method, f"{path}?fieldValidation=Loose", "{}", content_type)
        assert (code, status["message"]) == (
            422,
            f'{options}.meta.k8s.io "" is invalid: fieldValidation: Unsupported value: "Loose": supported values: "", '
            '"Ignore", "Strict", "Warn"',
        )


def test_an_update_is_validated_too(api: APIServer) -> None:
    _call(api, "POST", _PODS, '{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}')
    pod = json.dumps(api.store.get("pods", "p", "default") | {"other": 1})
    assert _call(api, "PUT", f"{_PODS}/p", pod)[2] == _warnings(['unknown field "other"'])
    code, status, _ = _call(api, "PUT", f"{_PODS}/p?fieldValidation=Strict", pod)
    assert code == 400 and status["message"].endswith('strict decoding error: unknown field "other"')


_PATCHES = [
    (
        "strategic",
        STRATEGIC,
        '{"spec":{"replcas":2,"containers":[{"name":"c","imge":"x"}]}}',
        ['unknown field "spec.containers[0].imge"', 'unknown field "spec.replcas"'],
        'patch: Invalid value: "map[spec:map[containers:[map[imge:x name:c]] replcas:2]]": ',
    ),
    ("merge", MERGE, '{"spec":{"replcas":2}}', ['unknown field "spec.replcas"'], 'patch: Invalid value: "{'),
    (
        "merge, twice",
        MERGE,
        '{"metadata":{"labels":{"a":"1","a":"2"}}}',
        ['duplicate field "metadata.labels.a"'],
        'patch: Invalid value: "{',
    ),
    (
        "json",
        JSON_PATCH,
        '[{"op":"add","path":"/spec/replcas","value":2}]',
        ['unknown field "spec.replcas"'],
        'patch: Invalid value: "{',
    ),
    (
        "json, twice",
        JSON_PATCH,
        '[{"op":"add","op":"add","path":"/metadata/labels","value":{}}]',
        ['json patch duplicate field "[0].op"'],
        'patch: Invalid value: "{',
    ),
]


@pytest.mark.parametrize(
    ("content_type", "body", "faults", "quoted"), [row[1:] for row in _PATCHES], ids=[row[0] for row in _PATCHES]
)
def test_patches_are_validated(api: APIServer, content_type: str, body: str, faults: list[str], quoted: str) -> None:
    _call(api, "POST", _PODS, '{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}')
    code, pod, warnings = _call(api, "PATCH", f"{_PODS}/p", body, content_type)
    assert (code, warnings) == (200, _warnings(faults))
    assert "replcas" not in pod["spec"] and "imge" not in pod["spec"]["containers"][0]
    code, status, _ = _call(api, "PATCH", f"{_PODS}/p?fieldValidation=Strict", body, content_type)
    assert (code, status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(f' "" is invalid: {quoted}')
    assert status["message"].endswith(f"strict decoding error: {', '.join(faults)}")
    assert _call(api, "PATCH", f"{_PODS}/p?fieldValidation=Ignore", body, content_type)[2] == []


def test_yaml_is_read(api: APIServer) -> None:
    text = "metadata:\n  name: b\nspec:\n  minAvailable: 1\n  minAvailable: 2\n  maxAvailable: 3\n"
    code, status, _ = _call(api, "POST", f"{_PDBS}?fieldValidation=Strict", text, _YAML)
    assert (code, status["message"]) == (
        400,
        'PodDisruptionBudget in version "v1" cannot be handled as a PodDisruptionBudget: strict decoding error: '
        'yaml: unmarshal errors:\n  line 5: key "minAvailable" already set in map, unknown field "spec.maxAvailable"',
    )
    code, budget, warnings = _call(api, "POST", _PDBS, text, _YAML)
    # The other message has two lines, which a header cannot contain.
    assert (code, warnings) == (201, _warnings(['unknown field "spec.maxAvailable"']))
    assert budget["spec"] == {"minAvailable": 2}


def test_the_body_of_a_subresource_is_validated(api: APIServer) -> None:
    _call(api, "POST", _PODS, '{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}')
    body = '{"metadata":{"name":"p"},"deleteOption":{}}'
    code, status, _ = _call(api, "POST", f"{_PODS}/p/eviction?fieldValidation=Strict", body)
    assert (code, status["message"]) == (
        400,
        'Eviction in version "v1" cannot be handled as a Eviction: strict decoding error: unknown field "deleteOption"',
    )
    code, _, warnings = _call(api, "POST", f"{_PODS}/p/eviction", body)
    assert (code, warnings) == (201, _warnings(['unknown field "deleteOption"']))


def test_the_store_drops_unknown_fields(api: APIServer) -> None:
    created = api.store.create("configmaps", {"metadata": {"name": "m", "namespace": "default"}, "dta": {"a": "b"}})
    assert "dta" not in created
    assert "dta" not in api.store.update("configmaps", created | {"dta": {"a": "b"}})
    assert "dta" not in api.store.patch("configmaps", "m", {"dta": {"a": "b"}}, "default")


def test_a_newer_server_keeps_them(api: APIServer) -> None:
    api.keep_unknown_fields = True
    code, pod, warnings = _call(api, "POST", f"{_PODS}?fieldValidation=Strict", _POD.replace('"a":"1",', ""))
    assert (code, warnings, pod["spec"]["hostNetwrok"]) == (201, [], True)
    code, pod, warnings = _call(api, "PATCH", f"{_PODS}/p", '{"metadata":{"newer":1}}', STRATEGIC)
    assert (code, warnings, pod["spec"]["hostNetwrok"], pod["metadata"]["newer"]) == (200, [], True, 1)
    assert (
        api.store.patch("pods", "p", {"status": {"newer": 2}}, "default", subresource="status")["status"]["newer"] == 2
    )


def test_the_fields_of_all_kinds_are_known() -> None:
    for resource in RESOURCES:
        if resource.group not in AGGREGATED:
            obj = {"nonsense": 1}
            assert fields.prune(resource.group_version, resource.kind, obj) == ['unknown field "nonsense"']
