"""Test the files that containers see in volumes from config maps, secrets, tokens and fields of the pod.

- content, modes and owners: test_files
- the form that an atomic change needs: test_files_are_links_into_a_directory_that_can_be_swapped
- no part of a secret is on a disk: test_secrets_are_kept_in_memory
- optional sources: test_files (optional…); volume_updates_test.py tests sources that appear later
- service account tokens: test_token_volume_of_every_pod, test_token_is_for_whom_it_was_asked_for,
  test_token_is_no_good_when_its_pod_is_gone

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap.
"""

from __future__ import annotations

from typing import Any

import pytest
from framework.cluster_client import TIMEOUT, Namespace
from framework.pods import Manifest
from framework.volumes import File, files, looker, mounted, once, put_config_map, put_secret, review, told
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api

CONFIG = {"one": "1", "two": "second\n", "empty": ""}
RAW = b"\x00\x01\xff"
SECRET = {"user": b"admin", "password": b"s3cret\n"}
LABELS = {"app": "looker", "tier": "one"}
ANNOTATIONS = {"note": 'with "quotes"'}
API_ACCESS = "/var/run/secrets/kubernetes.io/serviceaccount"
AUDIENCE = "somebody.example.com"
USER: dict[str, Any] = {"runAsUser": 1000, "runAsGroup": 3000}
GROUP: dict[str, Any] = {**USER, "fsGroup": 2000}

Source = dict[str, Any]


def projected(*sources: Source, **fields: object) -> Source:
    return {"projected": {"sources": list(sources), **fields}}


def field(path: str, field_path: str, **fields: object) -> Source:
    return {"path": path, "fieldRef": {"fieldPath": field_path}, **fields}


def amount(path: str, resource: str, divisor: str = "1") -> Source:
    return {"path": path, "resourceFieldRef": {"containerName": "main", "resource": resource, "divisor": divisor}}


ITEMS = [{"key": "one", "path": "folder/below/first"}, {"key": "two", "path": "second", "mode": 0o400}]
SECRET_ITEMS = [{"key": "user", "path": "folder/who"}, {"key": "password", "path": "word", "mode": 0o400}]
MIXED: list[Source] = [
    {"configMap": {"name": "settings", "items": [{"key": "one", "path": "map/one", "mode": 0o640}]}},
    {"secret": {"name": "settings", "items": [{"key": "user", "path": "secret/user"}]}},
    {"secret": {"name": "not-there", "optional": True}},
    {"downwardAPI": {"items": [field("pod/name", "metadata.name", mode=0o600)]}},
]
WHOLE_MAP = {
    "one": File(b"1"),
    "two": File(b"second\n"),
    "empty": File(b""),
    "raw": File(RAW),
}
# Each name maps to the volume, the pod's security context, and the expected files.
CASES: dict[str, tuple[Source, Source, dict[str, File]]] = {
    "map": ({"configMap": {"name": "settings"}}, {}, WHOLE_MAP),
    "map-items": (
        {"configMap": {"name": "settings", "defaultMode": 0o440, "items": ITEMS}},
        {},
        {"folder/below/first": File(b"1", "440"), "second": File(b"second\n", "400")},
    ),
    "map-group": (
        {"configMap": {"name": "settings", "defaultMode": 0o400}},
        GROUP,
        {name: File(found.content, "440", "0:2000") for name, found in WHOLE_MAP.items()},
    ),
    "map-optional": (
        {"configMap": {"name": "settings", "optional": True, "items": [ITEMS[0], {"key": "none", "path": "none"}]}},
        {},
        {"folder/below/first": File(b"1")},
    ),
    "map-optional-not-there": ({"configMap": {"name": "not-there", "optional": True}}, {}, {}),
    "secret": (
        {"secret": {"secretName": "settings"}},
        {},
        {"user": File(b"admin"), "password": File(b"s3cret\n")},
    ),
    "secret-items": (
        {"secret": {"secretName": "settings", "defaultMode": 0o440, "items": SECRET_ITEMS}},
        {},
        {"folder/who": File(b"admin", "440"), "word": File(b"s3cret\n", "400")},
    ),
    "secret-group": (
        {"secret": {"secretName": "settings", "defaultMode": 0o600, "items": SECRET_ITEMS}},
        GROUP,
        {"folder/who": File(b"admin", "640", "0:2000"), "word": File(b"s3cret\n", "440", "0:2000")},
    ),
    "secret-optional-not-there": ({"secret": {"secretName": "not-there", "optional": True}}, {}, {}),
    "downward": (
        {
            "downwardAPI": {
                "defaultMode": 0o444,
                "items": [
                    field("labels", "metadata.labels"),
                    field("note", "metadata.annotations['note']"),
                    field("app", "metadata.labels['app']", mode=0o400),
                    field("names/name", "metadata.name"),
                    amount("cpu", "limits.cpu", "1m"),
                    amount("memory", "requests.memory", "1Mi"),
                ],
            }
        },
        {},
        {
            "labels": File(b'app="looker"\ntier="one"', "444"),
            "note": File(b'with "quotes"', "444"),
            "app": File(b"looker", "400"),
            "names/name": File(b"downward", "444"),
            "cpu": File(b"250", "444"),
            "memory": File(b"16", "444"),
        },
    ),
    "downward-group": (
        {"downwardAPI": {"items": [field("name", "metadata.name", mode=0o400)]}},
        GROUP,
        {"name": File(b"downward-group", "440", "0:2000")},
    ),
    "projected": (
        projected(*MIXED, defaultMode=0o444),
        {},
        {
            "map/one": File(b"1", "640"),
            "secret/user": File(b"admin", "444"),
            "pod/name": File(b"projected", "600"),
        },
    ),
    "projected-group": (
        projected(*MIXED),
        GROUP,
        {
            "map/one": File(b"1", "640", "0:2000"),
            "secret/user": File(b"admin", "644", "0:2000"),
            "pod/name": File(b"projected-group", "640", "0:2000"),
        },
    ),
    "projected-whole": (
        projected({"configMap": {"name": "settings"}}, {"secret": {"name": "settings"}}),
        {},
        {**WHOLE_MAP, "user": File(b"admin"), "password": File(b"s3cret\n")},
    ),
}
# Each name maps to the pod's security context, and the mode and the owner of the token.
TOKENS: dict[str, tuple[Source, str, str]] = {
    "token": ({}, "644", "0:0"),
    "token-user": (USER, "600", "1000:0"),
    "token-group": (GROUP, "640", "1000:2000"),
}
TOKEN = {"serviceAccountToken": {"path": "there/token", "audience": AUDIENCE, "expirationSeconds": 7200}}


def looks_at(name: str, source: Source, script: str = "files /v", **spec: object) -> Manifest:
    """Return a pod that mounts the volume at /v."""
    limits = {"limits": {"cpu": "250m", "memory": "32Mi"}, "requests": {"cpu": "1m", "memory": "16Mi"}}
    main = looker(script, volumeMounts=[mounted("v", "/v")], resources=limits)
    made = once(name, main, volumes=[{"name": "v", **source}], **spec)
    made["metadata"] |= {"labels": LABELS, "annotations": ANNOTATIONS}
    return made


@pytest.fixture(scope="module", autouse=True)
def made(namespace: Namespace) -> None:
    put_config_map(namespace, "settings", CONFIG, {"raw": RAW})
    put_secret(namespace, "settings", SECRET)
    for name, (source, security, _) in CASES.items():
        namespace.create(looks_at(name, source, securityContext=security))
    for name, (security, _, _) in TOKENS.items():
        namespace.create(looks_at(name, projected(TOKEN), securityContext=security))
    shape = "cd /v; readlink second; readlink folder; readlink ..data; ls -A; stat -c %a ..data/ ..data/folder"
    namespace.create(looks_at("shape", {"configMap": {"name": "settings", "items": ITEMS}}, shape))
    for name, source in IN_MEMORY.items():
        namespace.create(looks_at(f"in-memory-{name}", source, "stat -f -c %T /v; touch /v/new || true"))
    script = "ls -A; cat namespace; echo; grep -c BEGIN.CERTIFICATE ca.crt; stat -L -c '%a %u:%g' token; cat token"
    everything = looker(f"cd {API_ACCESS}; {script}")
    namespace.create(once("api-access", everything, automountServiceAccountToken=True))


IN_MEMORY: dict[str, Source] = {
    "secret": {"secret": {"secretName": "settings"}},
    "projected": projected({"secret": {"name": "settings"}}),
    "downward": {"downwardAPI": {"items": [field("name", "metadata.name")]}},
}


@pytest.mark.parametrize("name", CASES)
def test_files(namespace: Namespace, name: str) -> None:
    assert files(told(namespace, name)) == CASES[name][2]


def test_files_are_links_into_a_directory_that_can_be_swapped(namespace: Namespace) -> None:
    second, folder, data, *rest = told(namespace, "shape").splitlines()
    assert (second, folder) == ("..data/second", "..data/folder")
    assert data.startswith("..2")
    assert sorted(rest[:-2]) == sorted([data, "..data", "folder", "second"])
    assert rest[-2:] == ["755", "755"]


@pytest.mark.parametrize("name", IN_MEMORY)
def test_secrets_are_kept_in_memory(namespace: Namespace, name: str) -> None:
    kind, refusal = told(namespace, f"in-memory-{name}").splitlines()
    assert kind == "tmpfs"
    assert refusal == "touch: /v/new: Read-only file system"


# --- Tokens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TOKENS)
def test_token_is_for_whom_it_was_asked_for(namespace: Namespace, name: str) -> None:
    found = files(told(namespace, name))
    assert list(found) == ["there/token"]
    token = found["there/token"]
    assert (token.mode, token.owner) == TOKENS[name][1:]

    reviewed = review(namespace.api, token.content.decode(), AUDIENCE)
    assert reviewed.authenticated and reviewed.audiences == [AUDIENCE]
    assert reviewed.user.username == f"system:serviceaccount:{namespace.name}:default"
    pod = namespace.history(name)[-1].object
    assert reviewed.user.extra["authentication.kubernetes.io/pod-name"] == [name]
    assert reviewed.user.extra["authentication.kubernetes.io/pod-uid"] == [pod.metadata.uid]
    assert reviewed.user.extra["authentication.kubernetes.io/node-name"] == [namespace.node]
    assert not review(namespace.api, token.content.decode(), "others.example.com").authenticated


def test_token_volume_of_every_pod(namespace: Namespace) -> None:
    *listed, name, certificates, mode, token = told(namespace, "api-access").splitlines()
    assert {"ca.crt", "namespace", "token", "..data"} <= set(listed)
    assert (name, mode) == (namespace.name, "644 0:0")
    assert int(certificates) > 0
    reviewed = review(namespace.api, token)
    assert reviewed.authenticated
    assert reviewed.user.username == f"system:serviceaccount:{namespace.name}:default"


def test_token_is_no_good_when_its_pod_is_gone(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.create(looks_at("goes", projected(TOKEN)))
    token = files(told(namespace, "goes"))["there/token"].content.decode()
    assert review(namespace.api, token, AUDIENCE).authenticated

    core.delete_namespaced_pod("goes", namespace.name, grace_period_seconds=0)
    namespace.wait_deleted("goes")

    wait_for(
        "the API server refuses the token", lambda: not review(namespace.api, token, AUDIENCE).authenticated, TIMEOUT
    )
