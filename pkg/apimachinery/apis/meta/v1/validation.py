"""Validate labels and label selectors.

Go: k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Mapping

from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field


def validate_label_selector(selector: metav1.LabelSelector | None, fld_path: field.Path) -> field.ErrorList:
    errs = field.ErrorList()
    if selector is None:
        return errs
    errs += validate_labels(selector.match_labels, fld_path.child("matchLabels"))
    for i, requirement in enumerate(selector.match_expressions):
        path = fld_path.child("matchExpressions").index(i)
        errs += validate_label_selector_requirement(requirement, path)
    return errs


def validate_label_selector_requirement(
    requirement: metav1.LabelSelectorRequirement, fld_path: field.Path
) -> field.ErrorList:
    errs = field.ErrorList()
    path = fld_path.child("values")
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                errs.append(field.required(path, "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if requirement.values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errs.append(field.forbidden(path, detail))
        case operator:
            errs.append(field.invalid(fld_path.child("operator"), operator, "not a valid selector operator"))
    errs += validate_label_name(requirement.key, fld_path.child("key"))
    for i, value in enumerate(requirement.values):
        errs += [field.invalid(path.index(i), value, m) for m in validation.is_valid_label_value(value)]
    return errs


def validate_label_name(name: str, fld_path: field.Path) -> field.ErrorList:
    return field.ErrorList(field.invalid(fld_path, name, m) for m in validation.is_qualified_name(name))


def validate_labels(labels: Mapping[str, str], fld_path: field.Path) -> field.ErrorList:
    errs = field.ErrorList()
    for key, value in labels.items():
        errs += validate_label_name(key, fld_path)
        errs += [field.invalid(fld_path, value, m) for m in validation.is_valid_label_value(value)]
    return errs
