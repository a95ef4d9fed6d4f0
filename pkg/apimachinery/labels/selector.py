"""Select objects by requirements on their labels, all of which must hold.

Go: k8s.io/apimachinery/pkg/labels/selector.go
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from pkg import klog
from pkg.apimachinery.util import validation
from pkg.golang import strconv


class Operator(enum.Enum):
    """List the ways to compare a label; the value is the operator's form in selectors."""

    DOES_NOT_EXIST = "!"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    GREATER_THAN = "gt"
    LESS_THAN = "lt"


_NUMBER_OF_VALUES = {
    Operator.DOES_NOT_EXIST: (0, 0, "values set must be empty for exists and does not exist"),
    Operator.EXISTS: (0, 0, "values set must be empty for exists and does not exist"),
    Operator.EQUALS: (1, 1, "exact-match compatibility requires one single value"),
    Operator.DOUBLE_EQUALS: (1, 1, "exact-match compatibility requires one single value"),
    Operator.NOT_EQUALS: (1, 1, "exact-match compatibility requires one single value"),
    Operator.GREATER_THAN: (1, 1, "for 'Gt', 'Lt' operators, exactly one value is required"),
    Operator.LESS_THAN: (1, 1, "for 'Gt', 'Lt' operators, exactly one value is required"),
}
_SIGNS = {
    Operator.EQUALS: "=",
    Operator.DOUBLE_EQUALS: "==",
    Operator.NOT_EQUALS: "!=",
    Operator.GREATER_THAN: ">",
    Operator.LESS_THAN: "<",
}


@dataclass(slots=True, frozen=True)
class Requirement:
    """Represent one comparison; raise ValueError if it is invalid."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if errs := validation.is_qualified_name(self.key):
            raise ValueError(f"key: Invalid value: {klog.quote(self.key)}: {'; '.join(errs)}")
        least, most, fault = _NUMBER_OF_VALUES.get(
            self.operator, (1, None, "for 'in', 'notin' operators, values set can't be empty")
        )
        if len(self.values) < least or (most is not None and len(self.values) > most):
            raise ValueError(f"values: Invalid value: {list(self.values)}: {fault}")
        for i, value in enumerate(self.values):
            self._validate_value(i, value)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Report whether the labels satisfy the requirement; a missing label is unequal to every value."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN | Operator.EQUALS | Operator.DOUBLE_EQUALS:
                return value in self.values
            case Operator.NOT_IN | Operator.NOT_EQUALS:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                return self._compares(value)

    def __str__(self) -> str:
        values = sorted(self.values)
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return "!" + self.key
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator.value} ({','.join(values)})"
            case _:
                return self.key + _SIGNS[self.operator] + values[0]

    def _compares(self, value: str | None) -> bool:
        number = None if value is None else _parse_int(value)
        limit = _parse_int(self.values[0])
        if number is None or limit is None:
            return False
        return number > limit if self.operator is Operator.GREATER_THAN else number < limit

    def _validate_value(self, index: int, value: str) -> None:
        errs = validation.is_valid_label_value(value)
        if self.operator in (Operator.GREATER_THAN, Operator.LESS_THAN) and _parse_int(value) is None:
            errs.append("for 'Gt', 'Lt' operators, the value must be an integer")
        if errs:
            raise ValueError(f"values[{index}][{self.key}]: Invalid value: {klog.quote(value)}: {'; '.join(errs)}")


@dataclass(slots=True, frozen=True)
class Selector:
    """Select objects for which all requirements hold, or all objects if there are none."""

    requirements: tuple[Requirement, ...] = ()
    selects_nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        return not self.selects_nothing and all(r.matches(labels) for r in self.requirements)

    def empty(self) -> bool:
        """Report whether the selector matches everything."""
        return not self.requirements and not self.selects_nothing

    def add(self, *requirements: Requirement) -> Selector:
        """Return a selector with additional requirements."""
        return Selector(tuple(sorted((*self.requirements, *requirements), key=lambda r: r.key)), self.selects_nothing)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def everything() -> Selector:
    return Selector()


def nothing() -> Selector:
    return Selector(selects_nothing=True)


def selector_from_set(labels: Mapping[str, str]) -> Selector:
    """Return a selector for objects with all these labels; raise ValueError if a label is invalid."""
    return Selector().add(*(Requirement(key, Operator.EQUALS, (value,)) for key, value in labels.items()))


def _parse_int(text: str) -> int | None:
    try:
        return strconv.parse_int(text)
    except strconv.NumError:
        return None
