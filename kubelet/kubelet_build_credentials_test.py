"""Test how a kubelet gets its credential providers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from framework import faulty_call
from framework.client_calls import Call
from framework.faulty_call import MINE, OTHER, FaultyCall, Kind

from kubelet import images, kubelet_build
from kubelet.testing import TestKubelet
from pkg import credentialprovider
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import kubernetes
from pkg.client_go.kubernetes.testing import Action, FakeClientset

_V1 = "credentialprovider.kubelet.k8s.io/v1"


def _write_plugin(folder: Path) -> kubelet_build.KubeletOptions:
    """Write a plugin that exchanges the token of a service account for a password."""
    answer = {"apiVersion": _V1, "kind": "CredentialProviderResponse", "cacheKeyType": "Global", "cacheDuration": "1h"}
    answer["auth"] = {"reg.io": {"username": "@", "password": "p"}}  # type: ignore[assignment]
    program = folder / "exchange"
    program.write_text(
        "#!/bin/sh\n"
        """token=$(sed 's/.*"serviceAccountToken":"\\([^"]*\\)".*/\\1/')\n"""
        f"echo '{json.dumps(answer)}' | sed \"s/@/for $token/\"\n"
    )
    program.chmod(0o755)
    attributes = {"serviceAccountTokenAudience": "reg.io", "cacheType": "ServiceAccount", "requireServiceAccount": True}
    provider = {
        "name": "exchange",
        "matchImages": ["reg.io"],
        "defaultCacheDuration": "0s",
        "apiVersion": _V1,
        "tokenAttributes": attributes,
    }
    config = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [provider]}
    (folder / "config.json").write_text(json.dumps(config))
    return kubelet_build.KubeletOptions(
        hostname="node",
        node_name="node",
        node_ips=[],
        root_directory=str(folder),
        image_credential_provider_config_path=str(folder / "config.json"),
        image_credential_provider_bin_dir=str(folder),
    )


def _token(action: Action) -> tuple[bool, authenticationv1.TokenRequest]:
    request: authenticationv1.TokenRequest = action.object
    assert request.spec.bound_object_ref is not None
    text = f"{action.namespace}-{action.name}-{request.spec.bound_object_ref.name}-{request.spec.audiences[0]}"
    end = datetime.now(UTC) + timedelta(hours=1)
    status = authenticationv1.TokenRequestStatus(token=text, expiration_timestamp=end)
    return True, authenticationv1.TokenRequest(status=status)


def _register(
    test_kubelet: TestKubelet, client: kubernetes.Interface | None, options: kubelet_build.KubeletOptions
) -> images.ExternalCredentials | None:
    return kubelet_build.register_credential_providers(test_kubelet.ctx, client, None, options, test_kubelet.clock)


def test_token_of_the_service_account(test_kubelet: TestKubelet, tmp_path: Path) -> None:
    client = FakeClientset(v1.ServiceAccount(metadata=metav1.ObjectMeta(name="sa", namespace="ns", uid=types.UID("1"))))
    client.prepend_reactor("create", "serviceaccounts/token", _token)
    credentials = _register(test_kubelet, client, _write_plugin(tmp_path))
    assert credentials is not None
    (found,) = credentials("ns", "pod", "uid", "sa").lookup("reg.io/image")
    assert found.auth_config == credentialprovider.AuthConfig(username="for ns-sa-pod-reg.io", password="p")
    assert found.source is not None
    assert found.source.service_account == credentialprovider.ServiceAccountCoordinates("1", "ns", "sa")
    # A static pod has no service account, and a service account that does not exist gives no credentials.
    for account in ("", "nobody"):
        assert credentials("ns", "pod", "uid", account).lookup("reg.io/image") == []


@faulty_call.cases(Call("kubelet/kubelet_build.py", "serviceaccounts", "get"))
def test_call_that_gets_a_service_account(call: Call, kind: Kind, test_kubelet: TestKubelet, tmp_path: Path) -> None:
    """Without the service account there are no credentials, and the image may be pulled without any."""
    with FaultyCall(tmp_path, call, kind) as api:
        api.create("serviceaccounts", {})
        for account in (MINE, OTHER):
            spec = {"containers": [{"name": "c", "image": "i"}], "serviceAccountName": account}
            api.cluster.store.create("pods", {"metadata": {"name": account, "namespace": "default"}, "spec": spec})
        credentials = _register(test_kubelet, api.client, _write_plugin(tmp_path))
        assert credentials is not None

        def passwords(name: str) -> list[str]:
            pod = api.cluster.store.get("pods", name, "default")["metadata"]
            found = credentials("default", name, pod["uid"], name).lookup("reg.io/image")
            return [each.auth_config.password for each in found]

        api.see_recover(passwords, ["p"])


def test_without_an_api_server_there_is_no_token(test_kubelet: TestKubelet, tmp_path: Path) -> None:
    credentials = _register(test_kubelet, None, _write_plugin(tmp_path))
    assert credentials is not None
    assert credentials("ns", "pod", "uid", "sa").lookup("reg.io/image") == []


def test_node_without_providers(test_kubelet: TestKubelet, tmp_path: Path) -> None:
    options = kubelet_build.KubeletOptions(hostname="n", node_name="n", node_ips=[], root_directory=str(tmp_path))
    assert _register(test_kubelet, None, options) is None
