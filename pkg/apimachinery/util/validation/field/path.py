"""Represent the path from an object to one of its fields.

Go: k8s.io/apimachinery/pkg/util/validation/field/path.go
"""

from __future__ import annotations


class Path:
    """Represent an immutable path such as `spec.containers[0].name`."""

    __slots__ = ("_text",)

    def __init__(self, name: str, *more_names: str) -> None:
        self._text = ".".join((name, *more_names))

    def child(self, name: str, *more_names: str) -> Path:
        return Path(self._text, name, *more_names)

    def index(self, index: int) -> Path:
        return Path(f"{self._text}[{index}]")

    def key(self, key: str) -> Path:
        return Path(f"{self._text}[{key}]")

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Path({self._text!r})"
