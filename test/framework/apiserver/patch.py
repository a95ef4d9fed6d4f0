"""Apply patches: JSON patches, merge patches and strategic merge patches.

Go: k8s.io/apiserver/pkg/endpoints/handlers/patch.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

import jsonpatch
import jsonpointer
import msgspec

from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import strategicpatch
from pkg.apimachinery.util.validation import field

from . import errors, fields
from .interfaces import Object, Request
from .resources import Resource, type_of

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
ACCEPTED = (JSON, MERGE, STRATEGIC)

Change = Callable[[Object], Object]


def change_of(
    resource: Resource, request: Request, warn: Callable[[str], None], *, keep_unknown_fields: bool = False
) -> Change:
    """Return a function that applies a patch and may change its argument. Raise ApiError if the patch is invalid.

    `warn` receives a strict decoder's errors in the result, if the request wants warnings.
    """
    if request.content_type not in ACCEPTED:
        raise errors.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    directive = fields.directive_of(request)
    try:
        patch = fields.decode_json(request.body, directive)
    except ValueError as err:
        raise errors.bad_request(f"error decoding patch: {err}") from err
    apply = _application(resource, request.content_type, patch)
    in_text = [] if directive is fields.Directive.IGNORE else fields.duplicates(patch)
    if request.content_type == JSON:
        in_text = [f"json patch {fault}" for fault in in_text]

    def change(obj: Object) -> Object:
        patched = apply(obj)
        shown = _shown(request, patched) if directive is fields.Directive.STRICT else ""
        faults = [] if keep_unknown_fields else fields.prune(resource.group_version, resource.kind, patched)
        faults = in_text + (sorted(faults) if request.content_type == STRATEGIC else faults)
        if faults and directive is fields.Directive.STRICT:
            fault = field.invalid(field.Path("patch"), shown, fields.decoding_error(faults))
            raise errors.invalid("", "", "", [fault])
        if directive is fields.Directive.WARN:
            for each in faults:
                warn(each)
        return patched

    return change


def _shown(request: Request, patched: Object) -> str:
    """Return the text that an error quotes: a strategic merge patch itself, or the result of another patch."""
    if request.content_type == STRATEGIC:
        return go_text(msgspec.json.decode(request.body))
    return msgspec.json.encode(patched).decode()


def _application(resource: Resource, content_type: str, patch: Any) -> Change:
    if content_type == JSON:
        return _json_patch(resource, patch)
    if not isinstance(patch, dict):
        raise errors.bad_request("error decoding patch: a merge patch is an object")
    if content_type == STRATEGIC:
        return lambda obj: strategic(resource, obj, patch)
    return lambda obj: merge(obj, patch)


class _PodTemplate(msgspec.Struct):
    metadata: metav1.ObjectMeta
    spec: v1.PodSpec


class _Spec(msgspec.Struct):
    template: _PodTemplate


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[Any]
    reserved_for: list[Any]
    PATCH_TAGS: ClassVar[dict[str, tuple[str, str]]] = {
        "conditions": ("merge", "type"),
        "reservedFor": ("merge", "uid"),
    }


class _Untyped(msgspec.Struct):
    """Describe the lists that merge in kinds for which this package has no type.

    A patch replaces all other lists of these kinds.
    """

    metadata: metav1.ObjectMeta
    spec: _Spec
    status: _Status
    template: _PodTemplate


def strategic(resource: Resource, obj: Object, patch: Object) -> Object:
    """Apply a strategic merge patch, with the type of the kind. Raise ApiError if the patch does not fit."""
    try:
        return strategicpatch.strategic_merge_map_patch(obj, patch, type_of(resource) or _Untyped)
    except (ValueError, TypeError, KeyError) as err:
        raise errors.bad_request(f"error applying patch: {err}") from err


def go_text(value: Any) -> str:
    """Return a value as Go prints it with %+v."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(go_text, value))}]"
    return str(value)


def merge(target: Any, patch: Any) -> Any:
    """Apply a merge patch as RFC 7386 defines it."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def _json_patch(resource: Resource, operations: Any) -> Change:
    if not isinstance(operations, list):
        raise errors.bad_request("error decoding patch: a JSON patch is a list of operations")

    def change(obj: Object) -> Object:
        try:
            patched: Any = jsonpatch.JsonPatch(operations).apply(obj)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException, KeyError, TypeError) as err:
            message = "the server rejected our request due to an error in our request"
            raise errors.ApiError(422, "Invalid", message, {}) from err
        return cast(Object, patched)

    return change
