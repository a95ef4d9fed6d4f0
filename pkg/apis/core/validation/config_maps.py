"""Validate config maps and secrets.

Go: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pkg.api.core import v1
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.apis.core.validation.names import Errors
from pkg.apis.core.validation.validation import validate_object_meta

# These are the keys that a secret of each type must have.
_REQUIRED_KEYS = {
    v1.SECRET_TYPE_DOCKERCFG: [v1.DOCKER_CONFIG_KEY],
    v1.SECRET_TYPE_DOCKER_CONFIG_JSON: [v1.DOCKER_CONFIG_JSON_KEY],
    v1.SECRET_TYPE_SSH_AUTH: [v1.SSH_AUTH_PRIVATE_KEY],
    v1.SECRET_TYPE_TLS: [v1.TLS_CERT_KEY, v1.TLS_PRIVATE_KEY_KEY],
}
_JSON_TYPES = (v1.SECRET_TYPE_DOCKERCFG, v1.SECRET_TYPE_DOCKER_CONFIG_JSON)


def validate_config_map(config_map: v1.ConfigMap) -> Errors:
    """Return all errors in a config map."""
    errs = validate_object_meta(config_map.metadata, field.Path("metadata"))
    errs += _validate_keys(config_map.data, field.Path("data"))
    for key in config_map.data:
        if key in config_map.binary_data:
            errs.append(field.invalid(field.Path("data").key(key), key, "duplicate of key present in binaryData"))
    errs += _validate_keys(config_map.binary_data, field.Path("binaryData"))
    size = sum(len(value.encode()) for value in config_map.data.values()) + _size(config_map.binary_data)
    if size > v1.MAX_SECRET_SIZE:
        errs.append(field.too_long(field.Path("data"), "", v1.MAX_SECRET_SIZE))
    return errs


def validate_secret(secret: v1.Secret) -> Errors:
    """Return all errors in a secret; no message quotes its data."""
    errs = validate_object_meta(secret.metadata, field.Path("metadata"))
    path = field.Path("data")
    errs += _validate_keys(secret.data, path)
    if _size(secret.data) > v1.MAX_SECRET_SIZE:
        errs.append(field.too_long(path, "", v1.MAX_SECRET_SIZE))
    return errs + _validate_secret_type(secret, path)


def _validate_secret_type(secret: v1.Secret, path: field.Path) -> Errors:
    if secret.type == v1.SECRET_TYPE_SERVICE_ACCOUNT_TOKEN:
        key = v1.SERVICE_ACCOUNT_NAME_KEY
        if secret.metadata.annotations.get(key):
            return []
        return [field.required(field.Path("metadata", "annotations").key(key), "")]
    if secret.type == v1.SECRET_TYPE_BASIC_AUTH:
        keys = [v1.BASIC_AUTH_USERNAME_KEY, v1.BASIC_AUTH_PASSWORD_KEY]
        return [] if any(key in secret.data for key in keys) else [field.required(path.key(key), "") for key in keys]
    keys = _REQUIRED_KEYS.get(secret.type, [])
    errs = [field.required(path.key(key), "") for key in keys if not _present(secret, key)]
    if not errs and secret.type in _JSON_TYPES:
        errs += _validate_json(secret.data[keys[0]], path.key(keys[0]))
    return errs


def _present(secret: v1.Secret, key: str) -> bool:
    return key in secret.data and (secret.type != v1.SECRET_TYPE_SSH_AUTH or bool(secret.data[key]))


def _validate_json(data: bytes, path: field.Path) -> Errors:
    redacted = "<secret contents redacted>"
    try:
        decoded = json.loads(data)
    except (ValueError, RecursionError) as err:
        # The error's own text could quote the data.
        return [field.invalid(path, redacted, f"{type(err).__name__}: not JSON")]
    return [] if isinstance(decoded, dict) else [field.invalid(path, redacted, "must be a JSON object")]


def _validate_keys(data: Mapping[str, object], path: field.Path) -> Errors:
    return [field.invalid(path.key(key), key, msg) for key in data for msg in validation.is_config_map_key(key)]


def _size(data: Mapping[str, bytes]) -> int:
    return sum(len(value) for value in data.values())
