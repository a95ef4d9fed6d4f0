"""Test credential provider plugins.

Go: pkg/credentialprovider/plugin/plugin_test.go, plugins_test.go, metrics_test.go
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import wait_for

from kubelet.apis.config.types import ExecEnvVar, ServiceAccountTokenAttributes
from pkg import credentialprovider, golang
from pkg.api.authentication import v1 as authenticationv1
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.component_base.metrics import legacyregistry
from pkg.credentialprovider import plugin
from pkg.credentialprovider.plugin import exec_plugin, metrics
from pkg.credentialprovider.plugin.exec_plugin import AuthConfig, CredentialProviderResponse, PluginError
from pkg.credentialprovider.plugin.plugin import ServiceAccountProvider
from pkg.util import exec as utilexec

_V1 = "credentialprovider.kubelet.k8s.io/v1"


class _Plugin:
    """Return credentials for a registry, and record the requests."""

    def __init__(self, cache_key_type: str = "Image", cache_duration: str | None = None, password: str = "pw") -> None:
        self.cache_key_type = cache_key_type
        self.cache_duration = cache_duration
        self.password = password
        self.images: list[str] = []
        self.tokens: list[str] = []
        self.annotations: list[Mapping[str, str]] = []
        self.err: Exception | None = None
        self.hold: threading.Event | None = None

    def exec_plugin(self, image: str, token: str, annotations: Mapping[str, str]) -> CredentialProviderResponse:
        self.images.append(image)
        self.tokens.append(token)
        self.annotations.append(annotations)
        if self.hold is not None:
            assert self.hold.wait(30)
        if self.err is not None:
            raise self.err
        return CredentialProviderResponse(
            cache_key_type=self.cache_key_type,
            cache_duration_text=self.cache_duration,
            auth={"reg.io": AuthConfig(str(len(self.images)), self.password)},
        )


class _World:
    def __init__(self, a_plugin: _Plugin, accounts: ServiceAccountProvider | None = None) -> None:
        self.plugin = a_plugin
        self.clock = testingclock.FakeClock()
        self.provider = plugin.PluginProvider("p", ["reg.io"], 60.0, a_plugin, accounts, self.clock)

    def user(self, image: str = "reg.io/a", account: str = "", pod: str = "pod") -> str:
        """Return the user name of the response, which counts the plugin's runs, or "" without credentials."""
        config, _ = self.provider.provide(image, "ns", pod, types.UID(f"uid-{pod}"), account)
        return config["reg.io"].username if config else ""


def test_images_of_others_are_not_asked_for() -> None:
    world = _World(_Plugin())
    assert world.user("other.io/a") == ""
    assert world.plugin.images == []


@pytest.mark.parametrize(
    ("cache_key_type", "same_image", "same_registry"),
    [("Image", "1", "2"), ("Registry", "1", "1"), ("Global", "1", "1")],
)
def test_cache_key_type(cache_key_type: str, same_image: str, same_registry: str) -> None:
    world = _World(_Plugin(cache_key_type))
    assert world.user("reg.io/a") == "1"
    assert world.user("reg.io/a") == same_image
    assert world.user("reg.io/b") == same_registry


def test_global_is_for_all_registries_and_registry_for_one() -> None:
    for cache_key_type, expected in (("Global", ["1", "1"]), ("Registry", ["1", "2"])):
        world = _World(_Plugin(cache_key_type))
        world.provider.match_images = ["*.io"]
        assert [world.user("reg.io/a"), world.user("eu.io/a")] == expected


@pytest.mark.parametrize(
    ("answer", "default", "kept"),
    [(None, 60.0, 60.0), (None, 0.0, 0.0), ("0", 60.0, 0.0), ("0s", 60.0, 0.0), ("2m", 60.0, 120.0)],
)
def test_cache_duration(answer: str | None, default: float, kept: float) -> None:
    world = _World(_Plugin(cache_duration=answer))
    world.provider.default_cache_duration = default
    assert world.user() == "1"
    world.clock.step(kept)
    assert world.user() == ("1" if kept else "2")
    world.clock.step(1.0)
    assert world.user() == ("2" if kept else "3")


def test_expired_answers_are_forgotten() -> None:
    world = _World(_Plugin())
    for i in range(5):
        world.user(f"reg.io/{i}")
    world.clock.step(15 * 60.0)
    world.user("reg.io/new")
    assert len(world.provider._cache) == 1


def test_answers_that_are_kept_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pkg.credentialprovider.plugin.plugin.MAX_CACHE_ENTRIES", 3)
    world = _World(_Plugin())
    for i in range(5):
        world.user(f"reg.io/{i}")
    assert [key[0] for key in world.provider._cache] == ["reg.io/2", "reg.io/3", "reg.io/4"]


def test_bad_cache_key_type() -> None:
    with pytest.raises(PluginError, match="did not return a valid cacheKeyType: Pod"):
        _World(_Plugin("Pod")).user()


class _CountingLock:
    """Count how often the lock was held."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.count += 1
        self._lock.release()


def test_those_who_ask_at_once_share_one_run() -> None:
    world = _World(_Plugin(cache_duration="0s"))
    world.plugin.hold = threading.Event()
    lock = _CountingLock()
    world.provider._group._lock = lock  # type: ignore[assignment]
    users: list[str] = []
    threads = [golang.go(lambda: users.append(world.user()), name=f"ask-{i}") for i in range(5)]
    # By now each thread knows for which call it waits.
    wait_for("all five wait for the run", lambda: lock.count == 5)
    world.plugin.hold.set()
    for thread in threads:
        thread.join(30)
    assert users == ["1"] * 5
    assert world.plugin.images == ["reg.io/a"]
    assert world.user() == "2"


def test_who_failed_is_told() -> None:
    accounts = _Accounts()
    world = _World(_Plugin(), accounts.provider)
    world.plugin.err = PluginError("boom")
    with pytest.raises(PluginError, match="failed to get credential from external registry credential provider: boom"):
        world.user(account="sa")
    accounts.token_err = RuntimeError("no tokens")
    with pytest.raises(PluginError, match=r"^failed to get service account token: no tokens"):
        world.user(account="sa")
    accounts.account_err = RuntimeError("no account")
    with pytest.raises(PluginError, match=r"^failed to get service account: no account"):
        world.user(account="sa")


def test_failure_is_raised_for_each_and_not_kept() -> None:
    world = _World(_Plugin())
    world.plugin.err = PluginError("boom")
    for _ in range(2):
        with pytest.raises(PluginError, match="boom"):
            world.user()
    world.plugin.err = None
    assert world.user() == "3"


class _Accounts:
    def __init__(self, **attributes: Any) -> None:
        self.annotations = {"needed": "1", "other": "2", "unasked": "3"}
        self.requests: list[authenticationv1.TokenRequest] = []
        self.account_err: Exception | None = None
        self.token_err: Exception | None = None
        fields: dict[str, Any] = {
            "service_account_token_audience": "aud",
            "cache_type": "ServiceAccount",
            "require_service_account": True,
            "required_service_account_annotation_keys": ["needed"],
            "optional_service_account_annotation_keys": ["other", "absent"],
        }
        attributes_struct = ServiceAccountTokenAttributes(**(fields | attributes))
        self.provider = ServiceAccountProvider(attributes_struct, self._get, self._token)

    def _get(self, namespace: str, name: str) -> v1.ServiceAccount:
        if self.account_err is not None:
            raise self.account_err
        meta = metav1.ObjectMeta(
            namespace=namespace, name=name, uid=types.UID(f"uid-{name}"), annotations=self.annotations
        )
        return v1.ServiceAccount(metadata=meta)

    def _token(
        self, namespace: str, name: str, request: authenticationv1.TokenRequest
    ) -> authenticationv1.TokenRequest:
        self.requests.append(request)
        if self.token_err is not None:
            raise self.token_err
        assert request.spec.bound_object_ref is not None
        token = f"{namespace}/{name} for {request.spec.bound_object_ref.name}"
        return authenticationv1.TokenRequest(status=authenticationv1.TokenRequestStatus(token=token))


def test_service_account_token() -> None:
    accounts = _Accounts()
    world = _World(_Plugin(), accounts.provider)
    _, coordinates = world.provider.provide("reg.io/a", "ns", "pod", types.UID("u"), "sa")
    assert coordinates == credentialprovider.ServiceAccountCoordinates("uid-sa", "ns", "sa")
    assert world.plugin.tokens == ["ns/sa for pod"]
    assert world.plugin.annotations == [{"needed": "1", "other": "2"}]
    (request,) = accounts.requests
    pod = authenticationv1.BoundObjectReference(api_version="v1", kind="Pod", name="pod", uid=types.UID("u"))
    assert (request.spec.audiences, request.spec.bound_object_ref, request.metadata.uid) == (["aud"], pod, "uid-sa")


@pytest.mark.parametrize(("cache_type", "other_pod"), [("ServiceAccount", "1"), ("Token", "2")])
def test_cache_by_service_account_or_token(cache_type: str, other_pod: str) -> None:
    world = _World(_Plugin("Registry"), _Accounts(cache_type=cache_type).provider)
    assert world.user(account="sa", pod="a") == "1"
    assert world.user(account="sa", pod="a") == "1"
    assert world.user(account="sa", pod="b") == other_pod
    assert world.user(account="other", pod="a") == str(int(other_pod) + 1)


def test_other_annotations_are_another_answer() -> None:
    accounts = _Accounts()
    world = _World(_Plugin(), accounts.provider)
    assert world.user(account="sa") == "1"
    accounts.annotations = {"needed": "changed"}
    assert world.user(account="sa") == "2"


@pytest.mark.parametrize(("required", "asked"), [(True, []), (False, [""])])
def test_pod_without_service_account(required: bool, asked: list[str]) -> None:
    accounts = _Accounts(require_service_account=required, required_service_account_annotation_keys=[])
    world = _World(_Plugin(), accounts.provider)
    world.user(account="")
    assert world.plugin.tokens == asked


def test_plugin_is_not_asked_without_the_required_annotation() -> None:
    accounts = _Accounts()
    accounts.annotations = {}
    world = _World(_Plugin(), accounts.provider)
    assert world.user(account="sa") == ""
    assert world.plugin.images == []


@pytest.mark.parametrize(("cache_type", "refused"), [("ServiceAccount", True), ("Token", False)])
def test_token_as_password_only_where_answers_are_kept_by_token(cache_type: str, refused: bool) -> None:
    world = _World(_Plugin(password="ns/sa for pod"), _Accounts(cache_type=cache_type).provider)
    if not refused:
        assert world.user(account="sa") == "1"
        return
    with pytest.raises(PluginError, match="returned the service account token as the password"):
        world.user(account="sa")


def test_keyring_asks_all_plugins_and_outlives_a_failure() -> None:
    bad, good = _World(_Plugin()), _World(_Plugin(), _Accounts().provider)
    bad.plugin.err = PluginError("boom")
    keyring = plugin.Providers([bad.provider, good.provider]).keyring("ns", "pod", types.UID("u"), "sa")
    (found,) = keyring.lookup("reg.io/a")
    assert found.auth_config == credentialprovider.AuthConfig(username="1", password="pw")
    assert found.source == credentialprovider.CredentialSource(
        service_account=credentialprovider.ServiceAccountCoordinates("uid-sa", "ns", "sa")
    )


def _script(directory: Path, text: str, name: str = "p") -> exec_plugin.ExecPlugin:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    env = [ExecEnvVar(name="FROM_CONFIG", value="1"), ExecEnvVar(name="BOTH", value="config")]
    environ = {"PATH": "/usr/bin:/bin", "BOTH": "system", "FROM_SYSTEM": "2"}
    return exec_plugin.ExecPlugin(name, _V1, ["--arg", "x y"], env, str(directory), environ)


_ANSWER = {"kind": "CredentialProviderResponse", "apiVersion": _V1, "cacheKeyType": "Image"}


def _answer(**fields: Any) -> str:
    return json.dumps(_ANSWER | fields)


def test_exec(tmp_path: Path) -> None:
    answer = _answer(cacheDuration="1h0m0s", auth={"reg.io": {"username": "u", "password": "p"}})
    script = f"""cat >{tmp_path}/request
echo "$1|$2|$FROM_CONFIG|$BOTH|$FROM_SYSTEM" >{tmp_path}/environment
echo '{answer}'"""
    response = _script(tmp_path, script).exec_plugin("reg.io/a", "", {})
    assert (response.cache_duration, response.auth) == (3600.0, {"reg.io": AuthConfig("u", "p")})
    assert (tmp_path / "environment").read_text() == "--arg|x y|1|config|2\n"
    assert json.loads((tmp_path / "request").read_bytes()) == {
        "kind": "CredentialProviderRequest",
        "apiVersion": _V1,
        "image": "reg.io/a",
    }


@pytest.mark.parametrize("auth", [None, {"reg.io": None}, {"reg.io": {"username": None, "password": None}}])
def test_null_counts_as_absent(tmp_path: Path, auth: object) -> None:
    response = _script(tmp_path, f"echo '{_answer(auth=auth, cacheDuration=None)}'").exec_plugin("reg.io/a", "", {})
    assert response.cache_duration is None
    assert all(entry == exec_plugin.AuthConfig() for entry in response.auth.values())


def test_request_is_never_on_a_disk(tmp_path: Path) -> None:
    plugin_ = _script(tmp_path, "readlink /proc/$$/fd/0 >&2; exit 1")
    with pytest.raises(exec_plugin.PluginError, match=r"exit status 1: /memfd:"):
        plugin_.exec_plugin("reg.io/a", "token", {})


def test_request_with_token(tmp_path: Path) -> None:
    request = exec_plugin.CredentialProviderRequest(
        image="i", service_account_token="t", service_account_annotations={"a": "b"}
    )
    assert json.loads(_script(tmp_path, "").encode_request(request)) == {
        "kind": "CredentialProviderRequest",
        "apiVersion": _V1,
        "image": "i",
        "serviceAccountToken": "t",
        "serviceAccountAnnotations": {"a": "b"},
    }


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("secret", "error reading GVK from response"),
        (_answer(apiVersion=_V1 + "beta1"), f"did not match expected apiVersion:{_V1}, actual apiVersion:{_V1}beta1"),
        (_answer(kind="Other"), 'unexpected Kind: "Other"'),
        (_answer(secret="s"), "error decoding credential provider plugin response from stdout"),
        (_answer(auth={"r": {"password": ["secret"]}}), "error decoding credential provider plugin response"),
        (_answer(cacheDuration="secret"), "error decoding credential provider plugin response"),
        pytest.param('{"x":' + "[" * 100_000 + "]" * 100_000 + "}", "error reading GVK from response", id="bottomless"),
    ],
)
def test_bad_answer_is_refused_without_being_quoted(tmp_path: Path, data: str, expected: str) -> None:
    with pytest.raises(PluginError) as caught:
        _script(tmp_path, "").decode_response(data.encode())
    assert expected in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo no such user >&2; exit 3", "for image reg.io/a: exit status 3: no such user"),
        ("kill -9 $$", "signal: killed"),
        ("yes", "wrote more than 1048576 bytes"),
    ],
)
def test_failing_plugin(tmp_path: Path, script: str, expected: str) -> None:
    with pytest.raises(PluginError) as caught:
        _script(tmp_path, script).exec_plugin("reg.io/a", "", {})
    assert str(caught.value).startswith("error execing credential provider plugin p")
    assert expected in str(caught.value)


def test_plugin_that_never_ends_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = bytearray()
    read, now = os.read, time.monotonic

    def listen(fd: int, size: int) -> bytes:
        data = read(fd, size)
        said.extend(data)
        return data

    # The time limit has passed as soon as the output was read.
    monkeypatch.setattr(utilexec, "monotonic", lambda: now() + (100 if b"waiting" in said else 0))
    monkeypatch.setattr(os, "read", listen)
    slow = _script(tmp_path, f"sleep 1000 & echo $! >{tmp_path}/pid; echo waiting >&2; wait")
    with pytest.raises(PluginError, match="context deadline exceeded: waiting"):
        slow.exec_plugin("reg.io/a", "", {})
    child = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    wait_for("the child is dead", lambda: _is_dead(child))


def _is_dead(stat: Path) -> bool:
    """Report whether a process is dead; a zombie counts as dead, and its adoptive parent reaps it."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_metrics(tmp_path: Path) -> None:
    metrics.register_metrics()
    metrics.register_metrics()
    for config_hash in ("sha256:old", "sha256:new"):
        metrics.record_credential_provider_config_hash(config_hash)
    _script(tmp_path, f"echo '{_answer()}'", "good").exec_plugin("i", "", {})
    with pytest.raises(PluginError):
        _script(tmp_path, "exit 1", "bad").exec_plugin("i", "", {})
    text = legacyregistry.expose().decode()
    assert 'kubelet_credential_provider_config_info{hash="sha256:new"} 1' in text
    assert "sha256:old" not in text
    assert 'kubelet_credential_provider_plugin_errors_total{plugin_name="bad"} 1' in text
    assert 'kubelet_credential_provider_plugin_duration_count{plugin_name="good"} 1' in text


_CONFIG = f"""apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers: [{{name: p, matchImages: [reg.io], defaultCacheDuration: 1m, apiVersion: {_V1}}}]
"""


def _register(config: Path | str, bin_dir: Path | str) -> list[plugin.PluginProvider]:
    accounts = _Accounts()
    return plugin.register_credential_provider_plugins(str(config), str(bin_dir), accounts._token, accounts._get)


def test_register(tmp_path: Path) -> None:
    _script(tmp_path, f"echo '{_answer(auth={'reg.io': {'username': 'u', 'password': 'p'}})}'")
    config = tmp_path / "config.yaml"
    config.write_text(_CONFIG)
    (provider,) = _register(config, tmp_path)
    found, _ = provider.provide("reg.io/a", "", "", types.UID(""), "")
    assert found == {"reg.io": credentialprovider.DockerConfigEntry("u", "p")}


def test_register_failures(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(_CONFIG)
    for path, bin_dir, expected in (
        ("", tmp_path, "--image-credential-provider-config is missing"),
        (config, "", "--image-credential-provider-bin-dir is missing"),
        (config, tmp_path / "none", "plugin binary directory .*none did not exist"),
        (config, tmp_path, "plugin binary executable .*p did not exist"),
    ):
        with pytest.raises((OSError, ValueError), match=expected):
            _register(path, bin_dir)
    _script(tmp_path, "")
    (tmp_path / "p").chmod(0o644)
    with pytest.raises(PermissionError, match=r"error inspecting binary executable .*/p"):
        _register(config, tmp_path)
    config.write_text(_CONFIG.replace("[reg.io]", "[]"))
    with pytest.raises(ValueError, match=r"config\.yaml.*providers\[0\]\.matchImages"):
        _register(config, tmp_path)
