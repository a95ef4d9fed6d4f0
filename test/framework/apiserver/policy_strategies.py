"""Add the rules of disruption budgets to the generic handling of objects.

Go: pkg/registry/policy/poddisruptionbudget/strategy.go, pkg/apis/policy/validation,
pkg/apis/apps/validation (ValidatePositiveIntOrPercent, IsNotMoreThan100Percent)
"""

from __future__ import annotations

import re
from typing import Any

from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.apis.meta.v1.validation import validate_label_selector
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.validation import field

from .interfaces import Object, Request
from .strategies import Errors, Strategy, wrong_shape

_COUNTS = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_NOT_NEGATIVE = "must be greater than or equal to 0"
_NO_PERCENT = (
    "a valid percent string must be a numeric followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


class PodDisruptionBudgetStrategy(Strategy):
    def default(self, obj: Object) -> None:
        obj["spec"] = obj.get("spec") or {}
        obj["status"] = dict.fromkeys(_COUNTS, 0) | (obj.get("status") or {})

    def prepare_create(self, request: Request, obj: Object) -> None:
        obj["status"] = dict.fromkeys(_COUNTS, 0)

    def validate(self, obj: Object) -> Errors:
        spec, path = obj["spec"], field.Path("spec")
        errs: Errors = []
        if "minAvailable" in spec and "maxUnavailable" in spec:
            errs.append(field.invalid(path, spec, "minAvailable and maxUnavailable cannot be both set"))
        for name in ("minAvailable", "maxUnavailable"):
            if name in spec:
                errs += _bad_amount(path.child(name), spec[name])
        errs += validate_label_selector(self._selector(spec), path.child("selector"))
        policy, policies = spec.get("unhealthyPodEvictionPolicy"), ["AlwaysAllow", "IfHealthyBudget"]
        if policy is not None and policy not in policies:
            errs.append(field.not_supported(path.child("unhealthyPodEvictionPolicy"), policy, policies))
        return errs

    def validate_update(self, request: Request, new: Object, old: Object) -> Errors:
        if request.subresource != "status":
            return self.validate(new)
        path, status = field.Path("status"), new["status"]
        return [field.invalid(path.child(name), status[name], _NOT_NEGATIVE) for name in _COUNTS if status[name] < 0]

    def _selector(self, spec: Object) -> metav1.LabelSelector | None:
        if "selector" not in spec:
            return None
        try:
            return codec.convert(spec["selector"], metav1.LabelSelector)
        except codec.DecodeError as err:
            raise wrong_shape(self.resource, err) from err


def _bad_amount(path: field.Path, value: Any) -> Errors:
    """Return the errors of a value that must be a number or a percentage."""
    if isinstance(value, int):
        return [field.invalid(path, value, _NOT_NEGATIVE)] if value < 0 else []
    if not re.fullmatch(r"[0-9]+%", str(value)):
        return [field.invalid(path, value, _NO_PERCENT)]
    return [field.invalid(path, value, "must not be greater than 100%")] if int(value[:-1]) > 100 else []
