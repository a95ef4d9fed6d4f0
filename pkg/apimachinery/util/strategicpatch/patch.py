"""Make and apply strategic merge patches.

Go: k8s.io/apimachinery/pkg/util/strategicpatch/patch.go

No function changes its arguments; results share unchanged parts with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import mergepatch
from pkg.apimachinery.util.strategicpatch import meta

JSONMap = dict[str, Any]
JSONList = list[Any]

DIRECTIVE_MARKER = "$patch"
DELETE_DIRECTIVE = "delete"
REPLACE_DIRECTIVE = "replace"
MERGE_DIRECTIVE = "merge"
RETAIN_KEYS_DIRECTIVE = "$retainKeys"
DELETE_FROM_PRIMITIVE_LIST_PREFIX = "$deleteFromPrimitiveList"
SET_ELEMENT_ORDER_PREFIX = "$setElementOrder"


def create_two_way_merge_patch(original: bytes, modified: bytes, type_: type | None) -> bytes:
    """Return the patch, with sorted keys, that turns the JSON object `original` into `modified`.

    `type_` is the msgspec struct of both objects. If it is None, lists are replaced as a whole. Raise
    mergepatch.PatchError on failure.
    """
    patch = create_two_way_merge_map_patch(_decode(original), _decode(modified), type_)
    return codec.encode_json(patch, sort_keys=True)


def create_two_way_merge_map_patch(original: JSONMap, modified: JSONMap, type_: type | None) -> JSONMap:
    """Return the patch for decoded objects; see create_two_way_merge_patch."""
    return _diff_maps(original, modified, type_, retain_keys=False)


def strategic_merge_patch(original: bytes, patch: bytes, type_: type | None) -> bytes:
    """Return the patched JSON object with sorted keys; raise mergepatch.PatchError on failure."""
    merged = strategic_merge_map_patch(_decode(original), _decode(patch), type_)
    return codec.encode_json(merged, sort_keys=True)


def strategic_merge_map_patch(original: JSONMap, patch: JSONMap, type_: type | None) -> JSONMap:
    """Return the patched object for decoded objects; see strategic_merge_patch."""
    return _merge_map(original, patch, type_)


def _decode(document: bytes) -> JSONMap:
    if not document:
        return {}
    try:
        decoded = msgspec.json.decode(document)
    except msgspec.DecodeError as err:
        raise mergepatch.BadJSONDocError(str(err)) from err
    return _expect_map(decoded)


# The following functions make a patch.


def _diff_maps(original: JSONMap, modified: JSONMap, type_: type | None, retain_keys: bool) -> JSONMap:
    patch: JSONMap = {}
    for key, value in modified.items():
        before = original.get(key)
        if key not in original or type(before) is not type(value):
            patch[key] = value
        elif isinstance(value, dict):
            _diff_map_field(key, before, value, patch, meta.lookup(type_, key))
        elif isinstance(value, list):
            _diff_list_field(key, before, value, patch, meta.lookup(type_, key))
        elif before != value:
            patch[key] = value
    patch.update((key, None) for key in original if key not in modified)
    retained = sorted(key for key, value in modified.items() if value is not None) if retain_keys else []
    if retained and patch:
        patch[RETAIN_KEYS_DIRECTIVE] = retained
    return patch


def _diff_map_field(key: str, original: Any, modified: JSONMap, patch: JSONMap, field: meta.PatchMeta) -> None:
    if field.strategy == REPLACE_DIRECTIVE:
        if original != modified:
            patch[key] = modified
    elif inner := _diff_maps(original, modified, field.type, field.retain_keys):
        patch[key] = inner


def _diff_list_field(key: str, original: Any, modified: JSONList, patch: JSONMap, field: meta.PatchMeta) -> None:
    if original == modified:
        return
    if field.strategy != MERGE_DIRECTIVE or not original:
        patch[key] = modified
    elif _elements_are_maps(original, modified):
        _diff_list_of_maps(key, original, modified, patch, field)
    else:
        _diff_list_of_scalars(key, original, modified, patch)


def _diff_list_of_maps(key: str, original: JSONList, modified: JSONList, patch: JSONMap, field: meta.PatchMeta) -> None:
    """Put the changes of a list into the patch.

    They are the new and changed elements in their new order, then the deletions sorted by key, and the new order.
    Several elements may have the same key (a port in two protocols). They are paired in their order.
    """
    merge_key = field.merge_key
    before = _by_merge_key(original, merge_key)
    changed, deleted = [], []
    for element in modified:
        same_key = before.get(_text(_merge_value(element, merge_key)))
        if not same_key:
            changed.append(element)
        elif difference := _diff_maps(same_key.pop(0), element, field.type, field.retain_keys):
            changed.append({**difference, merge_key: element[merge_key]})
    for _, left in sorted(before.items()):
        deleted += [{merge_key: element[merge_key], DIRECTIVE_MARKER: DELETE_DIRECTIVE} for element in left]
    order = [{merge_key: element[merge_key]} for element in modified]
    if changed or deleted:
        patch[key] = changed + deleted
    if order and (changed or deleted or order != [{merge_key: element[merge_key]} for element in original]):
        patch[f"{SET_ELEMENT_ORDER_PREFIX}/{key}"] = order


def _diff_list_of_scalars(key: str, original: JSONList, modified: JSONList, patch: JSONMap) -> None:
    added = _without(modified, original)
    deleted = sorted(set(_without(original, modified)), key=_text)
    if added:
        patch[key] = added
    if deleted:
        patch[f"{DELETE_FROM_PRIMITIVE_LIST_PREFIX}/{key}"] = deleted
    if modified:
        patch[f"{SET_ELEMENT_ORDER_PREFIX}/{key}"] = modified


# The following functions apply a patch.


def _merge_map(original: JSONMap, patch: JSONMap, type_: type | None) -> JSONMap:
    directive = patch.get(DIRECTIVE_MARKER)
    if directive == REPLACE_DIRECTIVE:
        return {key: value for key, value in patch.items() if key != DIRECTIVE_MARKER}
    if directive == DELETE_DIRECTIVE:
        return {}
    if DIRECTIVE_MARKER in patch:
        raise mergepatch.BadPatchTypeError(directive, patch)
    merged = _retain_keys(original, patch)
    for key, value in patch.items():
        if not _is_directive(key):
            _merge_field(merged, key, value, meta.lookup(type_, key))
    for key, order in _parallel_lists(patch, SET_ELEMENT_ORDER_PREFIX).items():
        _set_element_order(merged, key, original.get(key), patch.get(key), order, meta.lookup(type_, key))
    for key, deleted in _parallel_lists(patch, DELETE_FROM_PRIMITIVE_LIST_PREFIX).items():
        if isinstance(merged.get(key), list):
            merged[key] = _without(merged[key], deleted)
    return merged


def _merge_field(merged: JSONMap, key: str, value: Any, field: meta.PatchMeta) -> None:
    """Merge one field of the patch into `merged`, which belongs to the caller."""
    before = merged.get(key)
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, dict) and isinstance(before, dict):
        merged[key] = value if field.strategy == REPLACE_DIRECTIVE else _merge_map(before, value, field.type)
    elif isinstance(value, list) and isinstance(before, list):
        # A list that replaces another is used unchanged; a `$patch` in its elements has no effect.
        merged[key] = _merge_list(before, value, field) if field.strategy == MERGE_DIRECTIVE else value
    elif isinstance(value, dict) and DIRECTIVE_MARKER in value:
        merged.pop(key, None)  # There is nothing to delete or replace.
    else:
        merged[key] = _without_directives(value)


def _retain_keys(original: JSONMap, patch: JSONMap) -> JSONMap:
    """Return a copy of the object, reduced to the fields that the patch retains if the patch has that directive."""
    if RETAIN_KEYS_DIRECTIVE not in patch:
        return dict(original)
    retained = patch[RETAIN_KEYS_DIRECTIVE]
    if not isinstance(retained, list):
        raise mergepatch.BadPatchFormatError(RETAIN_KEYS_DIRECTIVE)
    for key, value in patch.items():
        if value is not None and not _is_directive(key) and key not in retained:
            raise mergepatch.BadPatchFormatError(RETAIN_KEYS_DIRECTIVE, f"{key!r} is set and not retained")
    return {key: value for key, value in original.items() if key in retained}


def _parallel_lists(patch: JSONMap, prefix: str) -> dict[str, JSONList]:
    """Return the lists that accompany a list of the patch, such as `$setElementOrder/env`, by that list's name."""
    found = {}
    for key, value in patch.items():
        if key.startswith(prefix):
            name = key.removeprefix(prefix + "/")
            if name == key or not isinstance(value, list):
                raise mergepatch.BadPatchFormatError(key, f"expected a list under {prefix}/FIELD")
            found[name] = value
    return found


def _set_element_order(
    merged: JSONMap, key: str, original: Any, patch: Any, order: JSONList, field: meta.PatchMeta
) -> None:
    """Sort the merged list in the order that the patch specifies."""
    elements = merged.get(key)
    if field.strategy != MERGE_DIRECTIVE or not isinstance(elements, list):
        return
    if isinstance(patch, list):
        _validate_order(key, patch, order, field.merge_key)
    before = original if isinstance(original, list) else []
    merged[key] = _normalize_element_order(elements, order, before, field.merge_key)


def _validate_order(key: str, patch: JSONList, order: JSONList, merge_key: str) -> None:
    """Raise PatchError if the elements of the patch are not in the order that the patch specifies."""
    mentioned = [element for element in patch if not _has_directive(element)]
    remaining = iter([_element_key(element, merge_key) for element in order])
    if order and not all(_element_key(element, merge_key) in remaining for element in mentioned):
        raise mergepatch.BadPatchFormatError(
            f"{SET_ELEMENT_ORDER_PREFIX}/{key}", f"the order of {patch} does not match that of {order}"
        )


def _merge_list(original: JSONList, patch: JSONList, field: meta.PatchMeta) -> JSONList:
    if not original and not patch:
        return original
    if not _elements_are_maps(original, patch):
        return _normalize_element_order(list(dict.fromkeys(original + patch)), patch, original, "")
    if not field.merge_key:
        raise mergepatch.PatchError(f"cannot merge lists without a merge key: {patch}")
    original, patch = _apply_special_elements(original, patch, field.merge_key)
    merged = list(original)
    for element in patch:
        value = _merge_value(element, field.merge_key)
        position = _find(merged, field.merge_key, value)
        if position is None:
            merged.append(_without_directives(element))
        else:
            merged[position] = _merge_map(merged[position], element, field.type)
    return _normalize_element_order(merged, patch, original, field.merge_key)


def _apply_special_elements(original: JSONList, patch: JSONList, merge_key: str) -> tuple[JSONList, JSONList]:
    """Apply the elements with `$patch`; return the resulting list and the elements that are still to be merged."""
    ordinary = [element for element in patch if not _has_directive(element)]
    replace = False
    for element in patch:
        match element.get(DIRECTIVE_MARKER, MERGE_DIRECTIVE):
            case "delete":
                value = _merge_value(element, merge_key)
                original = [kept for kept in original if _expect_map(kept).get(merge_key) != value]
            case "replace":
                replace = True
            case "merge" if DIRECTIVE_MARKER in element:
                raise mergepatch.PatchError("merging lists cannot yet be specified in the patch")
            case "merge":
                pass
            case unknown:
                raise mergepatch.BadPatchTypeError(unknown, element)
    return (ordinary, []) if replace else (original, ordinary)


def _normalize_element_order(
    merged: JSONList, patch_order: JSONList, server_order: JSONList, merge_key: str
) -> JSONList:
    """Return the patch's elements in the patch's order, with the server's other elements among them.

    An element that only the server has stays before the patch's next element if it was before that element.
    """
    by_patch = _positions(patch_order, merge_key)
    by_server = _positions(server_order, merge_key)

    def ordered(elements: Iterable[Any], positions: dict[Any, int]) -> JSONList:
        return sorted(elements, key=lambda element: positions.get(_element_key(element, merge_key), -1))

    mine = ordered((e for e in merged if _element_key(e, merge_key) in by_patch), by_patch)
    theirs = ordered((e for e in merged if _element_key(e, merge_key) not in by_patch), by_server)
    result = []
    for element in mine:
        place = by_server.get(_element_key(element, merge_key), -1)
        while theirs and by_server.get(_element_key(theirs[0], merge_key), len(by_server)) < place:
            result.append(theirs.pop(0))
        result.append(element)
    return result + theirs


def _positions(order: JSONList, merge_key: str) -> dict[Any, int]:
    positions: dict[Any, int] = {}
    for index, element in enumerate(order):
        positions.setdefault(_element_key(element, merge_key), index)
    return positions


# The following functions read elements and directives.


def _element_key(element: Any, merge_key: str) -> Any:
    """Return what identifies an element in its list: its merge key, or the scalar itself."""
    return _merge_value(element, merge_key) if merge_key else element


def _merge_value(element: Any, merge_key: str) -> Any:
    if merge_key not in _expect_map(element):
        raise mergepatch.NoMergeKeyError(element, merge_key)
    return element[merge_key]


def _by_merge_key(elements: JSONList, merge_key: str) -> dict[str, JSONList]:
    found: dict[str, JSONList] = {}
    for element in elements:
        found.setdefault(_text(_merge_value(element, merge_key)), []).append(element)
    return found


def _find(elements: JSONList, merge_key: str, value: Any) -> int | None:
    return next((i for i, element in enumerate(elements) if _expect_map(element).get(merge_key) == value), None)


def _elements_are_maps(*lists: JSONList) -> bool:
    """Report whether the elements are maps and not scalars; raise PatchError if they are of several types."""
    kinds = {type(element) for elements in lists for element in elements}
    if list in kinds:
        raise mergepatch.NoListOfListsError()
    if len(kinds) > 1:
        raise mergepatch.PatchError(f"the elements of a list are not of one type: {lists}")
    return dict in kinds


def _expect_map(value: Any) -> JSONMap:
    if not isinstance(value, dict):
        raise mergepatch.BadArgTypeError("an object", value)
    return value


def _without(elements: JSONList, removed: JSONList) -> JSONList:
    return [element for element in elements if element not in removed]


def _text(value: Any) -> str:
    """Return the text by which a merge key or scalar of any type is sorted."""
    return str(value)


def _is_directive(key: str) -> bool:
    return key in (DIRECTIVE_MARKER, RETAIN_KEYS_DIRECTIVE) or key.startswith(
        (SET_ELEMENT_ORDER_PREFIX, DELETE_FROM_PRIMITIVE_LIST_PREFIX)
    )


def _has_directive(element: Any) -> bool:
    return isinstance(element, dict) and DIRECTIVE_MARKER in element


def _without_directives(value: Any) -> Any:
    """Return a value of the patch for a field that was absent, without nulls and directives."""
    if isinstance(value, dict):
        return {
            key: _without_directives(inner)
            for key, inner in value.items()
            if inner is not None and not _is_directive(key) and not _has_directive(inner)
        }
    if isinstance(value, list):
        return [_without_directives(element) for element in value if not _has_directive(element)]
    return value
