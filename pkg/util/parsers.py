"""Split an image name into repository, tag and digest.

Go: pkg/util/parsers/parsers.go (and what it needs of github.com/distribution/reference)
"""

from __future__ import annotations

import re

# The unit is characters. No registry has longer names, and pods may use image names of a megabyte.
MAX_IMAGE_NAME_LENGTH = 4096

_DEFAULT_DOMAIN = "docker.io"
_LEGACY_DEFAULT_DOMAIN = "index.docker.io"
_OFFICIAL_REPO_PREFIX = "library/"
_DEFAULT_IMAGE_TAG = "latest"
_NAME_TOTAL_LENGTH_MAX = 255

_PATH_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN_COMPONENT = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_DOMAIN_COMPONENT}(?:\.{_DOMAIN_COMPONENT})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_REFERENCE = re.compile(
    rf"(?P<name>(?:{_DOMAIN}/)?{_PATH_COMPONENT}(?:/{_PATH_COMPONENT})*)"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
_DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}


class ImageNameError(ValueError):
    """Signal that an image name cannot be parsed."""


def parse_image_name(image: str) -> tuple[str, str, str]:
    """Return (repository with its domain, tag, digest). Raise ImageNameError.

    The tag is "latest" if the name has neither tag nor digest.
    """
    if len(image) > MAX_IMAGE_NAME_LENGTH:
        raise ImageNameError(f"image name has {len(image)} characters, must have at most {MAX_IMAGE_NAME_LENGTH}")
    try:
        repository, tag, digest = _parse_normalized_named(image)
    except ValueError as err:
        raise ImageNameError(f'couldn\'t parse image name "{image}": {err}') from None
    if not tag and not digest:
        tag = _DEFAULT_IMAGE_TAG
    return repository, tag, digest


def _parse_normalized_named(image: str) -> tuple[str, str, str]:
    if _IDENTIFIER.fullmatch(image):
        raise ValueError(f"invalid repository name ({image}), cannot specify 64-byte hexadecimal strings")
    domain, remainder = _split_docker_domain(image)
    repository_part = remainder.split(":", 1)[0].split("@", 1)[0]
    if repository_part.lower() != repository_part:
        raise ValueError(f"invalid reference format: repository name ({repository_part}) must be lowercase")
    match = _REFERENCE.fullmatch(f"{domain}/{remainder}")
    if match is None:
        raise ValueError("invalid reference format")
    if len(match["name"]) - len(domain) - 1 > _NAME_TOTAL_LENGTH_MAX:
        raise ValueError(f"repository name must not be more than {_NAME_TOTAL_LENGTH_MAX} characters")
    digest = match["digest"] or ""
    _check_digest(digest)
    return match["name"], match["tag"] or "", digest


def _split_docker_domain(name: str) -> tuple[str, str]:
    """Return domain and rest. A name without a domain before its first slash belongs to the default registry."""
    first, slash, rest = name.partition("/")
    has_domain = bool(slash) and (any(c in first for c in ".:") or first == "localhost" or first.lower() != first)
    domain, remainder = (first, rest) if has_domain else (_DEFAULT_DOMAIN, name)
    if domain == _LEGACY_DEFAULT_DOMAIN:
        domain = _DEFAULT_DOMAIN
    if domain == _DEFAULT_DOMAIN and "/" not in remainder:
        remainder = _OFFICIAL_REPO_PREFIX + remainder
    return domain, remainder


def _check_digest(digest: str) -> None:
    if not digest:
        return
    algorithm, _, encoded = digest.partition(":")
    length = _DIGEST_LENGTHS.get(algorithm)
    if length is None:
        raise ValueError("unsupported digest algorithm")
    if len(encoded) != length:
        raise ValueError("invalid checksum digest length")
    if encoded.lower() != encoded:
        raise ValueError("invalid checksum digest format")
