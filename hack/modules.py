"""The modules of the product, for the checks that read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cmd", "kubelet", "pkg")


def modules() -> Iterator[Path]:
    """All but tests, in a fixed order; what tests share is among them."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.name.endswith("_test.py"):
                yield path
