"""Test /flagz, /statusz and /debug/flags."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from pkg.apiserver.server import flagz, routes, statusz
from pkg.apiserver.server.routes.flags import MAX_VALUE_BYTES
from pkg.component_base.cli import flag as cliflag
from pkg.golang import http
from pkg.golang.http.request import Body
from pkg.golang.http.server import MAX_BODY_BYTES
from pkg.golang.http.testing import record


class Flags:
    def get_flagz(self) -> dict[str, str]:
        return {"v": "2", "address": "0.0.0.0"}


def mux() -> http.ServeMux:
    mux = http.ServeMux()
    mux.handle("/pods", lambda w, r: None)
    mux.handle("/debug/pprof/", lambda w, r: None)
    flagz.install(mux, "kubelet", Flags())
    statusz.install(mux, "kubelet", statusz.Registry(mux.registered_paths()))
    return mux


ACCEPTS_TEXT = ["", "text/plain", "*/*", "text/*", "application/json;v=foo;g=config.k8s.io;as=Flagz,*/*"]


@pytest.mark.parametrize("accept", ACCEPTS_TEXT)
@pytest.mark.parametrize("page", ["flagz", "statusz"])
def test_text(page: str, accept: str) -> None:
    response = record(mux(), "GET", f"/{page}", headers={"Accept": accept} if accept else None)
    assert (response.status, response.headers.get("Content-Type")) == (200, "text/plain; charset=utf-8")
    assert response.text.startswith(f"\nkubelet {page}\nWarning: This endpoint is not meant to be machine parseable")
    if page == "flagz":
        [address, v] = response.text.splitlines()[-2:]
        assert address.startswith("address") and address.endswith("0.0.0.0") and v.startswith("v") and v.endswith("2")
    else:
        assert "1.36" in response.text and " /debug /flagz /pods\n" in response.text


@pytest.mark.parametrize(("version", "deprecated"), [("v1beta1", False), ("v1alpha1", True)])
@pytest.mark.parametrize(
    ("media_type", "load"), [("application/json", json.loads), ("application/yaml", yaml.safe_load)]
)
def test_structured(media_type: str, load: Callable[[bytes], Any], version: str, deprecated: bool) -> None:
    accept = f"{media_type};v={version};g=config.k8s.io;as="
    response = record(mux(), "GET", "/flagz", headers={"Accept": f"{accept}Flagz"})
    assert response.headers.get("Content-Type") == f"{media_type};g=config.k8s.io;v={version};as=Flagz"
    assert ("deprecated" in response.headers.get("Warning")) == deprecated
    metadata = {"apiVersion": f"config.k8s.io/{version}", "metadata": {"name": "kubelet"}}
    assert load(response.body) == {**metadata, "kind": "Flagz", "flags": Flags().get_flagz()}

    status = load(record(mux(), "GET", "/statusz", headers={"Accept": f"{accept}Statusz"}).body)
    assert {key: status[key] for key in metadata} == metadata
    assert (status["kind"], status["paths"]) == ("Statusz", ["/debug", "/flagz", "/pods"])
    assert (status["binaryVersion"], status["emulationVersion"]) == ("1.36.2", "1.36")
    assert status["goVersion"] == f"{platform.python_implementation()} {platform.python_version()}"
    assert status["uptimeSeconds"] >= 0 and status["startTime"].endswith("Z")


@pytest.mark.parametrize(
    "accept",
    [
        "application/xml",
        "application/json",
        "application/json;v=v1beta1;g=config.k8s.io",
        "application/json;v=v2;g=config.k8s.io;as=Flagz",
        "application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
        "text/plain;v=v1beta1;g=config.k8s.io;as=Flagz",
        ";;;,,,=;q=x",
    ],
)
def test_not_acceptable(accept: str) -> None:
    response = record(mux(), "GET", "/flagz", headers={"Accept": accept})
    assert response.status == 406
    assert (response.json()["kind"], response.json()["reason"]) == ("Status", "NotAcceptable")


def test_the_most_wanted_form_is_taken() -> None:
    structured = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"
    wanted_most = {f"{structured};q=0.1,text/plain": "text/plain", f"text/plain;q=0.1,{structured}": "application/json"}
    for accept, wanted in wanted_most.items():
        response = record(mux(), "GET", "/flagz", headers={"Accept": accept})
        assert response.headers.get("Content-Type").startswith(wanted)


def test_humans_get_indented_json() -> None:
    accept = {"Accept": "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"}
    for target, agent, lines in (("/flagz", "curl/8", True), ("/flagz", "go", False), ("/flagz?pretty=1", "go", True)):
        response = record(mux(), "GET", target, headers={**accept, "User-Agent": agent})
        assert ("\n" in response.text) == lines


def test_flag_set_reader() -> None:
    flags, values = cliflag.FlagSet(), SimpleNamespace(secret="s3cr3t", open="o")
    for name in vars(values):
        flags.add(name, cliflag.Scalar(cliflag.Ref(values, name), "string", str), "usage")
    assert flagz.FlagSetReader(flags, ["secret"]).get_flagz() == {"secret": "CLASSIFIED", "open": "o"}


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 hr 00 min 00 sec"), (93784, "26 hr 03 min 04 sec")])
def test_uptime(seconds: int, text: str) -> None:
    assert statusz.statusz.uptime(seconds) == text


def test_aggregate_paths() -> None:
    paths = ["/metrics/cadvisor", "/metrics", "/apis/v1", "/", "", "/pods"]
    assert statusz.statusz.aggregate_paths(paths) == ["/metrics", "/pods"]


def _set(value: str) -> str:
    if value == "bad":
        raise ValueError("no such value")
    return f"set to {value}"


@pytest.mark.parametrize(
    ("method", "body", "status", "text"),
    [
        ("PUT", b"good", 200, "set to good\n"),
        ("PUT", b"bad", 400, "no such value\n"),
        ("GET", b"", 406, "unsupported http method\n"),
        ("POST", b"good", 406, "unsupported http method\n"),
    ],
)
def test_string_flag_put_handler(method: str, body: bytes, status: int, text: str) -> None:
    response = record(routes.string_flag_put_handler(_set), method, "/debug/flags/v", body=body)
    assert (response.status, response.text) == (status, text)


def test_a_body_that_is_no_text() -> None:
    assert record(routes.string_flag_put_handler(_set), "PUT", "/debug/flags/v", body=b"\xff").status == 400


@pytest.mark.parametrize(("size", "status"), [(MAX_VALUE_BYTES, 200), (MAX_VALUE_BYTES + 1, 413), (1 << 20, 413)])
def test_of_a_long_value_hardly_more_is_read_than_may_come(size: int, status: int) -> None:
    """The server reads hardly more of a value than the limit, even if the value arrives byte by byte."""
    left, handler = [size], routes.string_flag_put_handler(_set)

    def next_part() -> bytes:
        left[0] -= 1
        return b"a" if left[0] >= 0 else b""

    def serve(w: http.ResponseWriter, r: http.Request) -> None:
        r.body = Body(next_part, MAX_BODY_BYTES)
        handler(w, r)

    assert record(serve, "PUT", "/debug/flags/v").status == status
    assert left[0] >= size - MAX_VALUE_BYTES - 1
