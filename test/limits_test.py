"""Test that docs/limits.md has the values of the code."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROW = re.compile(r"^\|[^|]*\| \[`([\w.]+)`\]\(\.\./([\w/]+)\.py\) \| ([^|]+) \|", re.MULTILINE)
UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "s": 1, "": 1}


def value_of(text: str) -> float:
    """Return the number of a cell such as "10 KiB" or "30 s"."""
    number, _, unit = text.strip().partition(" ")
    return float(number.replace(",", "")) * UNITS[unit]


def limits() -> list[tuple[str, str, str]]:
    return ROW.findall((ROOT / "docs" / "limits.md").read_text())


@pytest.mark.parametrize(("name", "module", "value"), limits(), ids=lambda text: text)
def test_the_document_gives_the_value_of_the_constant(name: str, module: str, value: str) -> None:
    constant = reduce(getattr, name.split("."), importlib.import_module(module.replace("/", ".")))
    assert float(constant) == value_of(value)


def test_each_row_of_the_document_is_compared() -> None:
    lines = (ROOT / "docs" / "limits.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("|") and not line.startswith(("| what |", "| ---"))]
    assert len(limits()) == len(rows)
