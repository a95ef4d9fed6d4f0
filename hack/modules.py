"""List the modules of the product for the checks that read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cmd", "kubelet", "pkg")


def modules() -> Iterator[Path]:
    """Yield all modules except tests, in a fixed order; shared test modules are included."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.name.endswith("_test.py"):
                yield path
