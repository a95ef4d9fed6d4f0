"""Test the client's metrics with real requests.

Go: k8s.io/component-base/metrics/prometheus/restclient/metrics_test.go
"""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path

import pytest

from pkg import golang
from pkg.apimachinery.clock import testing as clocktesting
from pkg.client_go import rest
from pkg.client_go.plugin.pkg.client.auth.exec import exec as exec_plugin
from pkg.client_go.rest import testing
from pkg.client_go.tools.clientcmd import api
from pkg.component_base.metrics import legacyregistry
from pkg.component_base.metrics.prometheus import restclient

_EXEC_API = "client.authentication.k8s.io/v1"


def value(name: str, **labels: str) -> float | None:
    return legacyregistry.DEFAULT_GATHERER.get_sample_value(name, labels)


def test_requests_and_retries_move_the_metrics() -> None:
    restclient.register()

    def answer(request: testing.Request) -> None:
        if len(server.requests) == 1:
            request.answer(429, b"later", Retry_After="0")
        else:
            request.answer(200, b"0123456789")

    with testing.serve(answer) as server:
        one = rest.RESTClient(rest.Config(host=server.url))
        one.request(golang.background(), "POST", "/", body=b"x" * 100)
        one.close_idle_connections()
    where = {"verb": "POST", "host": one.host}
    assert value("rest_client_requests_total", code="429", method="POST", host=one.host) == 1
    assert value("rest_client_requests_total", code="200", method="POST", host=one.host) == 1
    assert value("rest_client_request_retries_total", code="200", **where) == 1
    assert value("rest_client_request_retries_total", code="429", **where) is None
    assert value("rest_client_request_duration_seconds_count", **where) == 1
    assert value("rest_client_request_size_bytes_sum", **where) == 200
    assert value("rest_client_response_size_bytes_sum", **where) == 10
    assert value("rest_client_rate_limiter_duration_seconds_count", **where) == 2
    assert value("rest_client_dns_resolution_duration_seconds_count", host="127.0.0.1")


def test_certificates_of_credential_plugins_are_watched(tmp_path: Path) -> None:
    restclient.register()
    assert value("rest_client_exec_plugin_ttl_seconds") == math.inf
    before = value("rest_client_exec_plugin_certificate_rotation_age_count")
    pairs = [testing.new_pair("node", days=2), testing.new_pair("node", days=1)]
    file = tmp_path / "plugin"
    clock = clocktesting.FakeClock(datetime.datetime.now(datetime.UTC))
    config = api.ExecConfig(command=str(file), api_version=_EXEC_API, interactive_mode="Never")
    authenticator = exec_plugin.Authenticator(config, clock=clock)
    for pair in pairs:
        status = {
            "clientCertificateData": pair.cert_pem.decode(),
            "clientKeyData": pair.key_pem.decode(),
            "expirationTimestamp": clock.now().isoformat(),
        }
        credential = {"apiVersion": _EXEC_API, "kind": "ExecCredential", "status": status}
        file.write_text(f"#!/bin/sh\ncat <<'EOF'\n{json.dumps(credential)}\nEOF\n")
        file.chmod(0o755)
        authenticator.cert()
        clock.step(1)
    day = 24 * 3600
    ttl = value("rest_client_exec_plugin_ttl_seconds")
    assert ttl is not None and 0.9 * day < ttl <= day
    assert value("rest_client_exec_plugin_certificate_rotation_age_count") == (before or 0) + 1


@pytest.mark.parametrize(
    ("script", "labels"),
    [
        ("exit 3", {"code": "3", "call_status": "plugin_execution_error"}),
        ("echo junk", {"code": "0", "call_status": "no_error"}),
        (None, {"code": "1", "call_status": "plugin_not_found_error"}),
    ],
)
def test_credential_plugins_are_counted(tmp_path: Path, script: str | None, labels: dict[str, str]) -> None:
    restclient.register()
    file = tmp_path / "plugin"
    if script is not None:
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
    config = api.ExecConfig(command=str(file), api_version=_EXEC_API, interactive_mode="Never")
    before = value("rest_client_exec_plugin_call_total", **labels) or 0
    with pytest.raises(exec_plugin.ExecPluginError):
        exec_plugin.Authenticator(config).token()
    assert value("rest_client_exec_plugin_call_total", **labels) == before + 1
