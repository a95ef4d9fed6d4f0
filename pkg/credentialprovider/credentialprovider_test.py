"""Test credential files, keyrings and secrets.

Go: pkg/credentialprovider/config_test.go, keyring_test.go, provider_test.go,
pkg/credentialprovider/secrets/secrets_test.go
"""

from __future__ import annotations

import base64
import json
import tracemalloc
from pathlib import Path

import pytest

from pkg import credentialprovider
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.credentialprovider import provider
from pkg.credentialprovider.secrets import make_docker_keyring


def _auth(text: str, padded: bool = True) -> str:
    encoded = base64.b64encode(text.encode()).decode()
    return encoded if padded else encoded.rstrip("=")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"username": "foo", "password": "bar", "email": "a@b"}, ("foo", "bar", "a@b")),
        ({"auth": _auth("foo:bar")}, ("foo", "bar", "")),
        ({"auth": _auth("foo:bar!", padded=False)}, ("foo", "bar!", "")),
        ({"auth": _auth("foo:bar:baz")}, ("foo", "bar:baz", "")),
        ({"auth": _auth("foo:bar")[:4] + "\r\n" + _auth("foo:bar")[4:] + "\n"}, ("foo", "bar", "")),
        ({"username": None, "password": None, "auth": None}, ("", "", "")),
        (None, ("", "", "")),
        ({"username": "x", "password": "y", "auth": _auth("foo:bar")}, ("foo", "bar", "")),
    ],
)
def test_entries(entry: dict[str, str | None] | None, expected: tuple[str, str, str]) -> None:
    config = credentialprovider.docker_config_json_from_bytes(json.dumps({"auths": {"reg.io": entry}}).encode())
    assert config == {"reg.io": credentialprovider.DockerConfigEntry(*expected)}


@pytest.mark.parametrize("text", ["{}", "null", '{"auths":null}', '{"HttpHeaders":{"a":"b"},"credsStore":"x"}'])
def test_config_without_entries(text: str) -> None:
    assert credentialprovider.docker_config_json_from_bytes(text.encode()) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "secret!",
        '{"auths": 5}',
        '{"auths":{"r":{"auth":"\u00e9\u00e9"}}}',
        '{"auths":{"r":{"auth":"pants"}}}',
        '{"auths":{"r":{"auth":"Zm9v"}}}',
    ],
)
def test_bad_configs_are_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(credentialprovider.DockerConfigError) as caught:
        credentialprovider.docker_config_json_from_bytes(text.encode())
    assert not text or text not in str(caught.value)


def test_first_readable_file_counts(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("none", "bad", "good")]
    for path, text in zip(paths[1:], ("{", '{"auths":{"reg.io":{"username":"u"}}}'), strict=True):
        Path(path).mkdir()
        Path(path, "config.json").write_text(text)
    assert credentialprovider.read_docker_config_json_file(paths)["reg.io"].username == "u"
    with pytest.raises(FileNotFoundError, match=r"couldn't find valid \.dockercfg"):
        credentialprovider.read_dockercfg_file(paths)
    Path(paths[2], ".dockercfg").write_text('{"old.io":{"username":"o"}}')
    assert credentialprovider.read_dockercfg_file(paths)["old.io"].username == "o"


@pytest.mark.parametrize(
    ("glob", "target", "expected"),
    [
        ("kubernetes.io", "kubernetes.io", True),
        ("*.kubernetes.io", "good.kubernetes.io", True),
        ("*.*.kubernetes.io", "a.b.kubernetes.io", True),
        ("prefix*.kubernetes.io", "prefixgood.kubernetes.io", True),
        ("*suffix.kubernetes.io", "good.kubernetes.io", False),
        ("*.kubernetes.io", "kubernetes.io", False),
        ("*.kubernetes.io", "a.b.kubernetes.io", False),
        ("kubernetes.io/foo", "kubernetes.io/foo/bar", True),
        ("kubernetes.io/foo", "kubernetes.io/bar", False),
        ("*-good.kubernetes.io", "prefix-good.kubernetes.io", True),
        ("prefix.*.io/foo", "prefix.kubernetes.io/foo/bar", True),
        ("prefix.*.io:1111/foo", "prefix.kubernetes.io:1111/foo/bar", True),
        ("*.*.*.kubernetes.io", "a.b.c.kubernetes.io", True),
        ("*kubernetes.io", "kubernetes.io", True),
        ("*kubernetes.io", "a.kubernetes.io", False),
        ("k*.io", "quay.io", False),
        ("kubernetes.io", "kubernetes.com", False),
        ("*.kubernetes.io:1234/blah", "prefix.kubernetes.io:1111/blah", False),
        ("*.kubernetes.io:5000", "good.kubernetes.io:5000", True),
        ("*.kubernetes.io:5000", "good.kubernetes.io", False),
        ("*.io", "*.io", True),
        ("a*b*.io", "axb.io", True),
        ("a*b*.io", "ax.io", False),
        ("a*b*b.io", "ab.io", False),
        ("a**b.io", "ab.io", True),
        ("*a*a", "a", False),
        ("quay.io", "quay.io/team/app", True),
        ("[quay.io", "quay.io", False),
        ("*", "[quay.io/a", False),
    ],
)
def test_urls_match(glob: str, target: str, expected: bool) -> None:
    assert credentialprovider.urls_match(glob, target) is expected


def test_stars_leave_nothing_behind() -> None:
    tracemalloc.start()
    try:
        assert not credentialprovider.urls_match("*a" * 20_000, "localhost/app")
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


def _keyring(*locations: str) -> credentialprovider.BasicDockerKeyring:
    keyring = credentialprovider.BasicDockerKeyring()
    keyring.add(None, {loc: credentialprovider.DockerConfigEntry(username=loc) for loc in locations})
    return keyring


@pytest.mark.parametrize(
    ("locations", "image", "expected"),
    [
        (["reg.io"], "reg.io/a", ["reg.io"]),
        (["https://reg.io/v1/"], "reg.io/a", ["https://reg.io/v1/"]),
        (["http://reg.io/v2/x/"], "reg.io/x/a", ["http://reg.io/v2/x/"]),
        (["reg.io", "reg.io/team"], "reg.io/team/a", ["reg.io/team", "reg.io"]),
        (["reg.io/team"], "reg.io/other/a", []),
        (["https://index.docker.io/v1/"], "docker.io/library/busybox", ["https://index.docker.io/v1/"]),
        (["https://index.docker.io/v1/"], "reg.io/a", []),
        (["*.reg.io"], "eu.reg.io/a", ["*.reg.io"]),
        (["https://user@reg.io:5000/team"], "reg.io:5000/team/a", ["https://user@reg.io:5000/team"]),
    ],
)
def test_lookup(locations: list[str], image: str, expected: list[str]) -> None:
    assert [c.auth_config.username for c in _keyring(*locations).lookup(image)] == expected


@pytest.mark.parametrize(
    "location",
    ["https://reg io", "https://reg.io:port", "https://reg.io/%zz", "[::1", "\u0301" * 600 + "\u0316" * 600],
)
def test_location_that_is_none_is_told_of_and_left_out(location: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert not _keyring(location)._creds
    assert "Entry in dockercfg invalid, ignoring" in capfd.readouterr().err


def test_union_asks_in_order() -> None:
    union = credentialprovider.UnionDockerKeyring([_keyring("reg.io"), _keyring("http://reg.io")])
    assert [c.auth_config.username for c in union.lookup("reg.io/a")] == ["reg.io", "http://reg.io"]


def test_hash_tells_credentials_apart() -> None:
    def hash_of(**fields: str) -> str:
        return credentialprovider.TrackedAuthConfig(credentialprovider.AuthConfig(**fields)).auth_config_hash

    assert hash_of(username="a") == hash_of(username="a")
    assert hash_of(username="a") != hash_of(password="a")
    # This is the SHA-256 of {"username":"a","password":"\u003cb\u003e"}, which Go's encoder writes.
    assert hash_of(username="a", password="<b>") == ("d11b780fc694edd01fe9383f0f929ee3aa4fe7e67ef7a1df5beda82dc314dc5e")


def _secret(kind: str, key: str, config: object) -> v1.Secret:
    return v1.Secret(
        metadata=metav1.ObjectMeta(name="s", namespace="ns", uid=types.UID("u")),
        type=kind,
        data={key: json.dumps(config).encode()},
    )


def test_secrets() -> None:
    entry = {"reg.io": {"username": "new"}}
    secrets = [
        _secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", {"auths": entry}),
        _secret("kubernetes.io/dockercfg", ".dockercfg", {"reg.io": {"username": "old"}}),
        _secret("Opaque", ".dockerconfigjson", {"auths": {"reg.io": {"username": "no"}}}),
    ]
    found = make_docker_keyring(secrets, _keyring("reg.io")).lookup("reg.io/a")
    assert [c.auth_config.username for c in found] == ["new", "old", "reg.io"]
    coordinates = credentialprovider.SecretCoordinates("u", "ns", "s")
    assert found[0].source == credentialprovider.CredentialSource(secret=coordinates)
    assert found[2].source is None


def test_no_secrets_is_the_default_keyring() -> None:
    default = _keyring()
    assert make_docker_keyring([], default) is default


def test_bad_secret_is_an_error() -> None:
    secret = _secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", [1])
    with pytest.raises(credentialprovider.DockerConfigError):
        make_docker_keyring([secret], _keyring())


def test_bottomless_json_is_an_error() -> None:
    with pytest.raises(credentialprovider.DockerConfigError):
        credentialprovider.docker_config_json_from_bytes(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_node_credentials_are_kept_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []

    def read() -> credentialprovider.DockerConfig:
        reads.append(1)
        if len(reads) == 2:
            raise FileNotFoundError("gone")
        return {"reg.io": credentialprovider.DockerConfigEntry(username=str(len(reads)))}

    monkeypatch.setattr(provider, "read_docker_config_file", read)
    clock = testingclock.FakeClock()
    caching = provider.CachingDockerConfigProvider(clock)
    for _ in range(2):
        assert caching.provide()["reg.io"].username == "1"
    clock.step(300)
    assert caching.provide() == {}
    clock.step(300)
    assert caching.provide()["reg.io"].username == "3"
