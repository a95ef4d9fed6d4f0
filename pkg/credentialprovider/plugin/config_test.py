"""Test the configuration of credential provider plugins.

Go: pkg/credentialprovider/plugin/config_test.go
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kubelet.apis.config import scheme
from kubelet.apis.config.types import CredentialProvider, CredentialProviderConfig
from pkg.credentialprovider.plugin import config

_V1 = "credentialprovider.kubelet.k8s.io/v1"


def _file(version: str = "v1", name: str = "test", **fields: str) -> str:
    lines = {"matchImages": '["registry.io/foobar"]', "defaultCacheDuration": "10m", "apiVersion": _V1} | fields
    body = "".join(f"    {key}: {value}\n" for key, value in lines.items())
    head = f"kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/{version}\n"
    return f"{head}providers:\n  - name: {name}\n{body}"


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1alpha1"])
def test_file(tmp_path: Path, version: str) -> None:
    path = tmp_path / "config"
    path.write_text(_file(version, args='["--v=5"]', env="[{name: FOO, value: BAR}]"))
    (provider,) = config.read_credential_provider_config(str(path))[0].providers
    assert (provider.name, provider.match_images, provider.api_version) == ("test", ["registry.io/foobar"], _V1)
    assert (provider.default_cache_duration, provider.args) == (600.0, ["--v=5"])
    assert [(variable.name, variable.value) for variable in provider.env] == [("FOO", "BAR")]


def test_directory_is_read_in_order_of_names(tmp_path: Path) -> None:
    for name, text in (
        ("b.yaml", _file(name="second")),
        ("a.yml", _file("v1beta1", name="first")),
        ("c.json", '{"kind":"CredentialProviderConfig","apiVersion":"kubelet.config.k8s.io/v1","providers":[]}'),
        ("notes.txt", "not a configuration"),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "d.json").mkdir()
    read, _ = config.read_credential_provider_config(str(tmp_path))
    assert [provider.name for provider in read.providers] == ["first", "second"]


def test_hash_is_that_of_go(tmp_path: Path) -> None:
    """The hash equals Go's; the expected value is that of Go's own test for the same text."""
    path = tmp_path / "config"
    path.write_text(
        """---
kind: CredentialProviderConfig
apiVersion: kubelet.config.k8s.io/v1alpha1
providers:
  - name: test
    matchImages:
    - "registry.io/foobar"
    defaultCacheDuration: 10m
    apiVersion: credentialprovider.kubelet.k8s.io/v1alpha1
    args:
    - --v=5
    env:
    - name: FOO
      value: BAR"""
    )
    _, config_hash = config.read_credential_provider_config(str(path))
    assert config_hash == "sha256:8a62755289ba50c4ca9495baab69eb861068503f8bd49b853e8ba6cf95c72bb8"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_file().replace("CredentialProviderConfig", "WrongKind"), 'no kind "WrongKind" is registered for version'),
        (_file().replace("kubelet.config.k8s.io", "foobar"), 'is registered for version "foobar/v1"'),
        (_file(unknownField="x"), 'strict decoding error: unknown field "providers[0].unknownField"'),
        (_file() + "    args: []\n    args: []\n", 'duplicate field "args" in line 9'),
        (_file(defaultCacheDuration="soon"), "providers[0].defaultCacheDuration: "),
        (_file(matchImages="registry.io"), "providers[0].matchImages: "),
        (_file("v1beta1", tokenAttributes="{}"), 'strict decoding error: unknown field "providers[0].tokenAttributes"'),
        (
            _file("v1alpha1", tokenAttributes="{}"),
            'strict decoding error: unknown field "providers[0].tokenAttributes"',
        ),
        ("providers: []", "Object 'apiVersion' is missing"),
        ("[]", "expected an object of kind CredentialProviderConfig"),
    ],
)
def test_bad_file_is_named_with_its_field(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(expected)) as caught:
        config.read_credential_provider_config(str(tmp_path))
    assert f'error decoding config "{path}"' in str(caught.value)


def test_bad_paths(tmp_path: Path) -> None:
    for path, expected in (
        ("", "path is empty"),
        (str(tmp_path / "none"), 'unable to access path ".*none"'),
        (str(tmp_path), "no configuration files found in directory"),
    ):
        with pytest.raises((OSError, ValueError), match=expected):
            config.read_credential_provider_config(path)


def test_a_name_in_two_files(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(_file())
    with pytest.raises(ValueError, match=r'duplicate provider name "test" found .*b\.yaml'):
        config.read_credential_provider_config(str(tmp_path))


_TOKEN_ATTRIBUTES: dict[str, Any] = {
    "serviceAccountTokenAudience": "audience",
    "cacheType": "ServiceAccount",
    "requireServiceAccount": True,
}


def _provider(**fields: Any) -> CredentialProvider:
    document = {
        "name": "foobar",
        "matchImages": ["foobar.registry.io"],
        "defaultCacheDuration": "1m",
        "apiVersion": _V1,
    } | fields
    given = {key: value for key, value in document.items() if value is not None}
    return scheme.convert({"providers": [given]}, CredentialProviderConfig).providers[0]


def _attributes(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in (_TOKEN_ATTRIBUTES | fields).items() if value is not None}


_KEYS = "providers[0].tokenAttributes.%sServiceAccountAnnotationKeys: "


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ""),
        ({"matchImages": []}, "providers[0].matchImages: Required value: at least 1 item in matchImages is required"),
        ({"defaultCacheDuration": None}, "providers[0].defaultCacheDuration: Required value"),
        (
            {"defaultCacheDuration": "-1m"},
            'providers[0].defaultCacheDuration: Invalid value: "-1m0s": must be greater than or equal to 0',
        ),
        (
            {"name": "foo/../bar"},
            "providers[0].name: Invalid value: \"foo/../bar\": provider name cannot contain '/'",
        ),
        ({"name": "."}, "providers[0].name: Invalid value: \".\": provider name cannot be '.'"),
        ({"name": ".."}, "providers[0].name: Invalid value: \"..\": provider name cannot be '..'"),
        ({"name": "foo bar"}, 'providers[0].name: Invalid value: "foo bar": provider name cannot contain spaces'),
        ({"name": ""}, "providers[0].name: Required value"),
        ({"apiVersion": ""}, "providers[0].apiVersion: Required value"),
        (
            {"apiVersion": _V1 + "alpha0"},
            f'providers[0].apiVersion: Unsupported value: "{_V1}alpha0": supported values:'
            f' "{_V1}", "{_V1}alpha1", "{_V1}beta1"',
        ),
        (
            {"matchImages": ["%invalid%"]},
            'providers[0].matchImages: Invalid value: "%invalid%": match image is invalid: invalid URL escape "%in"',
        ),
        ({"tokenAttributes": _attributes()}, ""),
        (
            {"tokenAttributes": _attributes(serviceAccountTokenAudience=None)},
            "providers[0].tokenAttributes.serviceAccountTokenAudience: Required value",
        ),
        (
            {"tokenAttributes": _attributes(cacheType=None)},
            "providers[0].tokenAttributes.cacheType: Required value: cacheType is required to be set when"
            " tokenAttributes is specified. Supported values are: ServiceAccount, Token",
        ),
        (
            {"tokenAttributes": _attributes(cacheType="Pod")},
            'providers[0].tokenAttributes.cacheType: Unsupported value: "Pod": supported values: "ServiceAccount",'
            ' "Token"',
        ),
        (
            {"tokenAttributes": _attributes(requireServiceAccount=None)},
            "providers[0].tokenAttributes.requireServiceAccount: Required value",
        ),
        (
            {"tokenAttributes": _attributes(), "apiVersion": _V1 + "beta1"},
            f"providers[0].tokenAttributes: Forbidden: tokenAttributes is only supported for {_V1} API version",
        ),
        (
            {"tokenAttributes": _attributes(requiredServiceAccountAnnotationKeys=["a-"])},
            _KEYS % "required" + 'Invalid value: "a-": name part must consist of',
        ),
        (
            {"tokenAttributes": _attributes(optionalServiceAccountAnnotationKeys=["x/y", "x/y"])},
            _KEYS % "optional" + 'Duplicate value: "x/y"',
        ),
        (
            {
                "tokenAttributes": _attributes(
                    requiredServiceAccountAnnotationKeys=["a", "b"], optionalServiceAccountAnnotationKeys=["b"]
                )
            },
            'providers[0].tokenAttributes: Invalid value: ["b"]: annotation keys cannot be both required and optional',
        ),
        (
            {"tokenAttributes": _attributes(requireServiceAccount=False, requiredServiceAccountAnnotationKeys=["a"])},
            _KEYS % "required" + "Forbidden: requireServiceAccount cannot be false when"
            " requiredServiceAccountAnnotationKeys is set",
        ),
    ],
)
def test_validate(fields: dict[str, Any], expected: str) -> None:
    errors = config.validate_credential_provider_config(CredentialProviderConfig(providers=[_provider(**fields)]), True)
    assert len(errors) == (1 if expected else 0)
    assert all(str(error).startswith(expected) for error in errors)


def test_validate_all_providers() -> None:
    validate = config.validate_credential_provider_config
    twice = CredentialProviderConfig(providers=[_provider(), _provider()])
    assert list(map(str, validate(twice, True))) == ['providers[1].name: Duplicate value: "foobar"']
    none = validate(CredentialProviderConfig(), True)
    assert list(map(str, none)) == ["providers: Required value: at least 1 item in plugins is required"]
    without_gate = validate(CredentialProviderConfig(providers=[_provider(tokenAttributes=_attributes())]), False)
    assert [str(error).partition(": tokenAttributes")[0] for error in without_gate] == [
        "providers[0].tokenAttributes: Forbidden"
    ]
