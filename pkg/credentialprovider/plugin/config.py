"""Read and validate a CredentialProviderConfig.

Go: pkg/credentialprovider/plugin/config.go
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from kubelet.apis import config as kubeletconfig
from kubelet.apis.config import scheme
from pkg import credentialprovider
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.component_base.cli.flag import format_duration

# These are the versions of the exec protocol. Only the newest supports service account tokens.
V1 = "credentialprovider.kubelet.k8s.io/v1"
API_VERSIONS = (V1, "credentialprovider.kubelet.k8s.io/v1alpha1", "credentialprovider.kubelet.k8s.io/v1beta1")

SERVICE_ACCOUNT_CACHE_TYPE = "ServiceAccount"
TOKEN_CACHE_TYPE = "Token"
_VALID_CACHE_TYPES = (SERVICE_ACCOUNT_CACHE_TYPE, TOKEN_CACHE_TYPE)

_KIND = "CredentialProviderConfig"
_CONFIG_VERSIONS = tuple(f"kubelet.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_CONFIG_SUFFIXES = (".json", ".yaml", ".yml")


def read_credential_provider_config(config_path: str) -> tuple[kubeletconfig.CredentialProviderConfig, str]:
    """Return the configured providers, and a hash of the configuration.

    config_path is a file, or a directory whose .json, .yaml and .yml files are read. Raise OSError or ValueError, whose
    text names the file and the field.
    """
    if not config_path:
        raise ValueError("credential provider config path is empty")
    hasher = hashlib.sha256()
    merged = kubeletconfig.CredentialProviderConfig()
    seen: set[str] = set()
    for path in _config_files(Path(config_path)):
        data = path.read_bytes()
        # The length in front of the data ensures that different sets of files have different hashes.
        hasher.update(len(data).to_bytes(8, "big") + data)
        for provider in _decode_file(path, data).providers:
            if provider.name in seen:
                raise ValueError(
                    f'duplicate provider name "{provider.name}" found in configuration file(s), again in "{path}"'
                )
            seen.add(provider.name)
            merged.providers.append(provider)
    return merged, f"sha256:{hasher.hexdigest()}"


def _config_files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f'unable to access path "{path}": no such file or directory')
    if not path.is_dir():
        return [path]
    files = sorted(entry for entry in path.iterdir() if entry.suffix in _CONFIG_SUFFIXES and not entry.is_dir())
    if not files:
        raise ValueError(f'no configuration files found in directory "{path}"')
    return files


def _decode_file(path: Path, data: bytes) -> kubeletconfig.CredentialProviderConfig:
    try:
        return decode(data)
    except ValueError as err:
        raise ValueError(f'error decoding config "{path}": {err}') from err


def decode(data: bytes) -> kubeletconfig.CredentialProviderConfig:
    """Parse one file; raise ValueError (scheme.StrictDecodingError) that names all invalid fields."""
    from pkg.apimachinery.util import yaml

    document = scheme.decode(data, _KIND, kubeletconfig.CredentialProviderConfig, _CONFIG_VERSIONS)
    if yaml.to_builtins(data)["apiVersion"] != _CONFIG_VERSIONS[0]:
        providers = document.get("providers") or []
        faults = [
            f'unknown field "providers[{i}].tokenAttributes"' for i, p in enumerate(providers) if "tokenAttributes" in p
        ]
        if faults:
            raise scheme.StrictDecodingError(faults)
    return scheme.convert(document, kubeletconfig.CredentialProviderConfig)


def validate_credential_provider_config(
    config: kubeletconfig.CredentialProviderConfig, sa_token_for_credential_providers: bool
) -> field.ErrorList:
    """Return all errors; the flag says whether plugins may receive service account tokens.

    DIVERGES (fault of Go): the path of an error in the credential provider configuration contains the provider's index.
    Go: pkg/credentialprovider/plugin/config.go, validateCredentialProviderConfig: the paths lack the index of the
    provider.
    Why: with several providers, the operator would not know which one is meant.
    Test: config_test.py:test_validate_all_providers
    """
    providers = field.Path("providers")
    errors = field.ErrorList()
    if not config.providers:
        errors.append(field.required(providers, "at least 1 item in plugins is required"))
    seen: set[str] = set()
    for i, provider in enumerate(config.providers):
        path = providers.index(i)
        errors += _validate_name(path.child("name"), provider.name, seen)
        errors += _validate_provider(path, provider)
        if provider.token_attributes is not None:
            errors += _validate_token_attributes(
                path.child("tokenAttributes"),
                provider.token_attributes,
                provider.api_version,
                sa_token_for_credential_providers,
            )
    return errors


def _validate_name(path: field.Path, name: str, seen: set[str]) -> Iterator[field.Error]:
    if "/" in name:
        yield field.invalid(path, name, "provider name cannot contain '/'")
    if " " in name:
        yield field.invalid(path, name, "provider name cannot contain spaces")
    if name in (".", ".."):
        yield field.invalid(path, name, f"provider name cannot be '{name}'")
    if not name:
        # DIVERGES (fault of Go): the kubelet reports a missing name of a credential provider as such.
        # Go: pkg/credentialprovider/plugin/config.go, validateCredentialProviderConfig: an empty name is valid, and the
        # kubelet then fails because the directory of the plugins is not a program.
        # Why: that message does not say which field is missing.
        # Test: config_test.py:test_validate
        yield field.required(path)
    if name in seen:
        yield field.duplicate(path, name)
    seen.add(name)


def _validate_provider(path: field.Path, provider: kubeletconfig.CredentialProvider) -> Iterator[field.Error]:
    if not provider.api_version:
        yield field.required(path.child("apiVersion"))
    elif provider.api_version not in API_VERSIONS:
        yield field.not_supported(path.child("apiVersion"), provider.api_version, API_VERSIONS)
    if not provider.match_images:
        yield field.required(path.child("matchImages"), "at least 1 item in matchImages is required")
    for image in provider.match_images:
        try:
            credentialprovider.parse_schemeless_url(image)
        except ValueError as err:
            yield field.invalid(path.child("matchImages"), image, f"match image is invalid: {err}")
    duration = provider.default_cache_duration
    if duration is None:
        yield field.required(path.child("defaultCacheDuration"))
    elif duration < 0:
        text = format_duration(duration)
        yield field.invalid(path.child("defaultCacheDuration"), text, "must be greater than or equal to 0")


def _validate_token_attributes(
    path: field.Path, attributes: kubeletconfig.ServiceAccountTokenAttributes, api_version: str, gate: bool
) -> Iterator[field.Error]:
    if not gate:
        yield field.forbidden(
            path,
            "tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders feature gate is"
            " disabled",
        )
    if not attributes.service_account_token_audience:
        yield field.required(path.child("serviceAccountTokenAudience"))
    if attributes.require_service_account is None:
        yield field.required(path.child("requireServiceAccount"))
    if api_version != V1:
        yield field.forbidden(path, f"tokenAttributes is only supported for {V1} API version")
    required = attributes.required_service_account_annotation_keys
    optional = attributes.optional_service_account_annotation_keys
    required_path = path.child("requiredServiceAccountAnnotationKeys")
    if attributes.require_service_account is False and required:
        yield field.forbidden(
            required_path, "requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set"
        )
    yield from _validate_service_account_annotation_keys(required_path, required)
    yield from _validate_service_account_annotation_keys(path.child("optionalServiceAccountAnnotationKeys"), optional)
    if both := sorted({*required} & {*optional}):
        yield field.invalid(path, both, "annotation keys cannot be both required and optional")
    yield from _validate_cache_type(path.child("cacheType"), attributes.cache_type)


def _validate_cache_type(path: field.Path, cache_type: str) -> Iterator[field.Error]:
    if not cache_type:
        supported = ", ".join(_VALID_CACHE_TYPES)
        yield field.required(
            path,
            f"cacheType is required to be set when tokenAttributes is specified. Supported values are: {supported}",
        )
    elif cache_type not in _VALID_CACHE_TYPES:
        yield field.not_supported(path, cache_type, _VALID_CACHE_TYPES)


def _validate_service_account_annotation_keys(path: field.Path, keys: Sequence[str]) -> Iterator[field.Error]:
    seen: set[str] = set()
    for key in keys:
        # The key is validated like an annotation, by the rule for names without regard to case.
        for message in validation.is_qualified_name(key.lower()):
            yield field.invalid(path, key, message)
        if key in seen:
            yield field.duplicate(path, key)
        seen.add(key)
