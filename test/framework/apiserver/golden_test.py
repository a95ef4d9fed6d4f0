"""Test that the test API server responds to recorded requests of a kubelet as the real one did.

The test sends all requests that the node sent to a real API server, scenario by scenario, to one test server. Where the
recorded responses show an action of the recorded user (apply, bind, delete), the test does the same. It leaves out
watches, and requests for tokens, whose responses are random.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from framework.apiserver import APIServer
from framework.apiserver.admission import Plugins

_DATA = Path(__file__).parents[2] / "data" / "golden" / "v1.36.2"
_SCENARIOS = ("00-register", "01-plain", "02-everything", "03-ends", "04-host", "05-static", "06-restart")
_METHODS = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
    "get": "GET",
    "list": "GET",
}
_TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9-]+")
_NAMESPACE = "golden"


class Replay:
    """Restore the recorded cluster, as far as the node can see it, and send the recorded requests."""

    def __init__(self, api: APIServer) -> None:
        self._api = api
        self._connection = http.client.HTTPConnection("127.0.0.1", api.port)
        self._uids: dict[str, str] = {}  # The key is the recorded UID, and the value that of the test server.
        api.store.create("namespaces", {"metadata": {"name": _NAMESPACE}})
        api.store.create("serviceaccounts", {"metadata": {"name": "default", "namespace": _NAMESPACE}})

    def close(self) -> None:
        self._connection.close()

    def run(self, scenario: str) -> list[str]:
        """Return the responses that differ from the recording."""
        source = "02-everything" if scenario == "06-restart" else scenario
        manifest = _DATA / source / "input.yaml"
        if scenario == "06-restart":
            # Since its registration the node has become ready, and a controller has removed its taint.
            self._api.store.patch("nodes", "labnode", {"spec": {"taints": None}})
        if manifest.exists() and scenario != "05-static":
            self._apply(manifest)
        lines = [json.loads(line) for line in (_DATA / scenario / "api.jsonl").read_text().splitlines()]
        lines.sort(key=lambda line: str(line["t"]))
        return [fault for line in lines if _is_replayed(line) for fault in self._say(line)]

    def _apply(self, manifest: Path) -> None:
        for document in yaml.safe_load_all(manifest.read_text()):
            meta = document["metadata"]
            if document["kind"] in ("ConfigMap", "Secret"):
                resource = document["kind"].lower() + "s"
                if not self._api.store.list(resource, _NAMESPACE, field_selector=f"metadata.name={meta['name']}"):
                    self._api.store.create(resource, {**document, "metadata": {**meta, "namespace": _NAMESPACE}})
            elif document["kind"] == "Pod":
                for pod in self._api.store.list("pods", _NAMESPACE, field_selector=f"metadata.name={meta['name']}"):
                    uid = pod["metadata"]["uid"]
                    self._api.store.delete("pods", meta["name"], _NAMESPACE, grace_period_seconds=0, uid=uid)
                annotated = {**meta, "namespace": _NAMESPACE}
                self._api.store.create("pods", {**document, "metadata": annotated})
                binding = {"metadata": annotated, "target": {"kind": "Node", "name": "labnode"}}
                self._api.store.create("pods", binding, subresource="binding")

    def _say(self, line: dict[str, Any]) -> Iterator[str]:
        self._catch_up(line)
        method, sent = _METHODS[line["verb"]], line.get("sent")
        body = None if sent is None else self._translated(line, sent)
        headers = {"Content-Type": _content_type(line), "Accept": "application/json"}
        self._connection.request(method, line["uri"], body, headers)
        answer = self._connection.getresponse()
        got = json.loads(answer.read())
        what = f"{line['verb']} {line['uri']}"
        if answer.status != line["code"]:
            yield f"{what}: {answer.status} instead of {line['code']}: {got.get('message')}"
        elif "got" in line:
            self._learn(line["got"], got)
            ours, theirs = _comparable(got), _comparable(line["got"])
            yield from (f"{what}: {difference}" for difference in _differences("", ours, theirs))

    def _catch_up(self, line: dict[str, Any]) -> None:
        """Delete the pod if the recorded user must have done so before this response."""
        meta = (line.get("got") or {}).get("metadata") or {}
        if line["verb"] not in ("patch", "delete") or "/pods/" not in line["uri"]:
            return
        ours = self._api.store.get("pods", meta["name"], _NAMESPACE)
        self._uids[meta["uid"]] = ours["metadata"]["uid"]
        deleted = "deletionTimestamp" in meta and line["verb"] == "patch"
        if deleted and "deletionTimestamp" not in ours["metadata"]:
            grace = meta["deletionGracePeriodSeconds"]
            self._api.store.delete("pods", meta["name"], _NAMESPACE, grace_period_seconds=grace)

    def _translated(self, line: dict[str, Any], sent: Any) -> bytes:
        """Return the sent data with the UIDs of the test server, and with the current resource version in an update."""
        if line["verb"] == "update":
            meta = sent["metadata"]
            lease = self._api.store.get("leases", meta["name"], meta["namespace"])
            self._uids[meta["uid"]] = lease["metadata"]["uid"]
            meta["resourceVersion"] = lease["metadata"]["resourceVersion"]
        text = json.dumps(sent)
        for recorded, ours in self._uids.items():
            text = text.replace(recorded, ours)
        return text.encode()

    def _learn(self, recorded: dict[str, Any], ours: dict[str, Any]) -> None:
        if uid := (recorded.get("metadata") or {}).get("uid"):
            self._uids[uid] = ours["metadata"]["uid"]


def _is_replayed(line: dict[str, Any]) -> bool:
    return line["verb"] in _METHODS and not line["uri"].endswith("/token")


def _content_type(line: dict[str, Any]) -> str:
    return "application/strategic-merge-patch+json" if line["verb"] == "patch" else "application/json"


def _comparable(value: Any) -> Any:
    """Remove what differs from run to run, and what is empty."""
    if isinstance(value, dict):
        kept = {key: _comparable(item) for key, item in value.items() if key not in _OF_THE_RUN and item is not None}
        return {key: item for key, item in kept.items() if item not in ({}, [], "")}
    if isinstance(value, list):
        return [_comparable(item) for item in value if not _is_foreign(item)]
    if isinstance(value, str):
        return _TOKEN_VOLUME.sub("kube-api-access-?", _TIME.sub("<time>", _UID.sub("<uid>", value)))
    return value


# A controller writes the last of these.
_OF_THE_RUN = (
    "uid",
    "resourceVersion",
    "managedFields",
    "kubectl.kubernetes.io/last-applied-configuration",
    "node.alpha.kubernetes.io/ttl",
)


def _is_foreign(item: Any) -> bool:
    """Report whether a source of the token volume is not part of Kubernetes."""
    return isinstance(item, dict) and (item.get("configMap") or {}).get("name") == "openshift-service-ca.crt"


def _differences(path: str, ours: Any, theirs: Any) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in ours.keys() | theirs.keys():
            yield from _differences(f"{path}.{key}", ours.get(key), theirs.get(key))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _differences(f"{path}[{i}]", mine, other)
    elif ours != theirs:
        yield f"{path} is {ours!r} and not {theirs!r}"


@pytest.fixture(scope="module")
def faults() -> dict[str, list[str]]:
    """Return the differing responses by scenario. The scenarios run in order because each builds on those before."""
    api = APIServer()
    api.admission = Plugins(lambda: api.store, mount_tokens=True)
    with api:
        replay = Replay(api)
        try:
            return {scenario: replay.run(scenario) for scenario in _SCENARIOS}
        finally:
            replay.close()


@pytest.mark.parametrize("scenario", _SCENARIOS)
def test_answers_as_the_real_server_did(faults: dict[str, list[str]], scenario: str) -> None:
    assert faults[scenario] == []
