"""Negotiate in which of several formats the client receives a page.

Go: k8s.io/apiserver/pkg/endpoints/handlers/negotiation, k8s.io/apiserver/pkg/endpoints/handlers/responsewriters
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec

if TYPE_CHECKING:
    from pkg.golang import http

JSON, YAML, TEXT = "application/json", "application/yaml", "text/plain"

# These parameters name the kind of the response: group, version, kind.
_KIND_PARAMETERS = ("g", "v", "as")
# These programs show their output to users.
_HUMAN_AGENTS = ("curl", "Wget", "Mozilla/5.0")


@dataclass(frozen=True, slots=True)
class GroupVersionKind:
    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


@dataclass(frozen=True, slots=True)
class MediaType:
    name: str
    # `convert` is None for text.
    convert: GroupVersionKind | None

    @property
    def in_full(self) -> str:
        """Return the media type with which a client requests exactly this format."""
        kind = self.convert
        return self.name if kind is None else f"{self.name};g={kind.group};v={kind.version};as={kind.kind}"


class NotAcceptableError(Exception):
    """Signal that the server supports none of the media types that the client accepts."""


def negotiate_output_media_type(accept: str, kinds: Sequence[GroupVersionKind]) -> MediaType:
    """Return the format for an Accept header; raise NotAcceptableError on failure.

    The format is text, or JSON or YAML if the header names one of the kinds in full.
    """
    if not accept.strip():
        return MediaType(TEXT, None)
    for wanted, parameters in _parse_accept(accept):
        for offered in (JSON, YAML, TEXT):
            if wanted not in (offered, f"{offered.partition('/')[0]}/*", "*/*"):
                continue
            if not any(key in parameters for key in _KIND_PARAMETERS):
                if offered == TEXT:
                    return MediaType(TEXT, None)
                continue
            kind = GroupVersionKind(*(parameters.get(key, "") for key in _KIND_PARAMETERS))
            if offered != TEXT and kind in kinds:
                return MediaType(offered, kind)
    raise NotAcceptableError(f"only the following media types are accepted: {', '.join((JSON, YAML, TEXT))}")


def _parse_accept(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Return the media types with their parameters, sorted by the client's preference."""
    clauses: list[tuple[float, str, dict[str, str]]] = []
    for clause in accept.split(","):
        name, *parameters = (part.strip() for part in clause.split(";"))
        values = {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in parameters)}
        try:
            quality = float(values.pop("q", "1"))
        except ValueError:
            quality = 1.0
        clauses.append((quality, name.lower(), values))
    clauses.sort(key=lambda clause: -clause[0])
    return [(name, values) for _, name, values in clauses]


def write_structured(
    w: http.ResponseWriter, r: http.Request, media_type: MediaType, document: Mapping[str, Any]
) -> None:
    """Write the document as JSON, indented for users, or as YAML."""
    if media_type.name == YAML:
        from pkg.apimachinery.util import yaml

        body = yaml.dump(dict(document)).encode()
    else:
        body = json.dumps(document, indent=2 if _is_pretty_print(r) else None).encode()
    w.headers.set("Content-Type", media_type.in_full)
    w.write_header(200)
    w.write(body)


def write_not_acceptable(w: http.ResponseWriter, err: NotAcceptableError) -> None:
    status = metav1.Status(
        api_version="v1", kind="Status", status="Failure", message=str(err), reason="NotAcceptable", code=406
    )
    w.headers.set("Content-Type", JSON)
    w.write_header(406)
    w.write(codec.encode_json(status))


def _is_pretty_print(r: http.Request) -> bool:
    if pretty := r.param("pretty"):
        return pretty in ("1", "t", "T", "true", "TRUE", "True")
    return r.headers.get("User-Agent").startswith(_HUMAN_AGENTS)
