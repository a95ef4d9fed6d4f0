"""Test the import contracts on generated packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CONTRACTS = """
[tool.importlinter]
root_packages = ["house"]
contract_types = [
    "layers_of_program: import_contracts.LayersOfProgram",
    "one_way: import_contracts.OneWayContract",
    "testing_for_tests: import_contracts.TestingContract",
]

[[tool.importlinter.contracts]]
name = "layers"
type = "layers_of_program"
containers = ["house"]
layers = ["roof", "walls"]

[[tool.importlinter.contracts]]
name = "testing"
type = "testing_for_tests"

[[tool.importlinter.contracts]]
name = "circles"
type = "one_way"
circles_of_types = [{circles}]
"""
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house import {module}\n"


def lint(folder: Path, modules: dict[str, str], circles: str = "") -> tuple[int, str]:
    """Create a package from the modules' texts, check it, and return the exit status and the output."""
    house = folder / "house"
    house.mkdir()
    for name in ("__init__", "roof", "walls", "testing"):
        (house / f"{name}.py").write_text(modules.get(name, ""))
    for name, text in modules.items():
        (house / f"{name}.py").write_text(text)
    (folder / "pyproject.toml").write_text(CONTRACTS.format(circles=circles))
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()"]
    environment = os.environ | {"PYTHONPATH": f"{folder}:{ROOT / 'hack'}", "COLUMNS": "200"}
    done = subprocess.run(
        [*command, "--no-logo", "--no-cache", "pyproject.toml"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("modules", "told"),
    [
        pytest.param({"walls": "from house import roof"}, "house.walls -> house.roof", id="from below"),
        pytest.param({"roof": "from house import testing"}, "house.roof imports house.testing", id="testing"),
        pytest.param(
            {"window": "from house import door", "door": "def open():\n    from house import window\n"},
            "these import each other: house.door house.window",
            id="circle through a function",
        ),
        pytest.param(
            {"window": "from house import door", "door": FOR_TYPES.format(module="window")},
            "these import each other for their types: house.door house.window",
            id="circle of types",
        ),
    ],
)
def test_what_breaks_a_contract(tmp_path: Path, modules: dict[str, str], told: str) -> None:
    status, output = lint(tmp_path, modules)
    assert status == 1
    assert told in output


def test_tests_import_what_they_like(tmp_path: Path) -> None:
    status, output = lint(
        tmp_path, {"walls_test": "from house import roof, testing, walls", "roof": "import house.walls"}
    )
    assert status == 0, output


def test_a_listed_circle_stays_and_one_that_has_gone_is_told(tmp_path: Path) -> None:
    modules = {"window": "from house import door", "door": FOR_TYPES.format(module="window")}
    (tmp_path / "there").mkdir()
    assert lint(tmp_path / "there", modules, '"house.door house.window"')[0] == 0
    (tmp_path / "gone").mkdir()
    status, output = lint(tmp_path / "gone", {}, '"house.door house.window"')
    assert status == 1
    assert "listed, but no longer a circle: house.door house.window" in output
