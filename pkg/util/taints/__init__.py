"""Parse and validate taints.

Go: pkg/util/taints/taints.go
"""

from __future__ import annotations

from pkg.api.core import v1

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def parse_taints(spec: list[str]) -> list[v1.Taint]:
    """Parse `key=value:effect` texts. Raise ValueError if one is invalid."""
    taints: list[v1.Taint] = []
    for text in spec:
        taint = _parse_taint(text)
        if not taint.effect:
            raise ValueError(f"invalid taint spec: {text}")
        if any(taint.key == other.key and taint.effect == other.effect for other in taints):
            raise ValueError(f"duplicated taints with the same key and effect: {format_taint(taint)}")
        taints.append(taint)
    return taints


def format_taint(taint: v1.Taint) -> str:
    """Return the taint as `key=value:effect`."""
    return f"{taint.key}={taint.value}:{taint.effect}"


def check_taint_validation(taint: v1.Taint) -> None:
    """Raise ValueError if key, value or effect are invalid for a taint."""
    from pkg.apimachinery.util import validation

    if errs := validation.is_qualified_name(taint.key):
        raise ValueError(f"invalid taint key: {'; '.join(errs)}")
    if taint.value and (errs := validation.is_valid_label_value(taint.value)):
        raise ValueError(f"invalid taint value: {'; '.join(errs)}")
    if taint.effect:
        _check_effect(taint.effect)


def _check_effect(effect: str) -> None:
    if effect not in _EFFECTS:
        raise ValueError(f"invalid taint effect: {effect}, unsupported taint effect")


def _parse_taint(text: str) -> v1.Taint:
    from pkg.apimachinery.util import validation

    pair, has_effect, effect = text.partition(":")
    key, _, value = pair.partition("=") if has_effect else (text, "", "")
    if effect.count(":") or value.count("="):
        raise ValueError(f"invalid taint spec: {text}")
    if has_effect:
        _check_effect(effect)
    errs = validation.is_valid_label_value(value) + validation.is_qualified_name(key)
    if errs:
        raise ValueError(f"invalid taint spec: {text}, {'; '.join(errs)}")
    return v1.Taint(key=key, value=value, effect=effect)
