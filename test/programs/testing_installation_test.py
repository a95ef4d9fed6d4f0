"""Test kubelet-testing in its own environment, beside a project with packages of the same names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from framework.containerd import ROOT

_SOURCE = ROOT / "hack" / "dist-testing"
_EXAMPLE = ROOT / "examples" / "testing"
_INSTALL_TIMEOUT = 900.0
_RUN_TIMEOUT = 600.0
# The project has its own `pkg` and `kubelet`, whose modules this tree's could hide.
_OWN_PACKAGES = """
import kubelet
import kubelet_testing
import pkg
from kubelet_testing import Cluster, HollowNode

def test_whose_packages_these_are() -> None:
    assert (pkg.NAME, kubelet.NAME) == ("mine", "mine")
    assert Cluster.__module__ == "kubelet_testing.apiserver.cluster"
    assert HollowNode.__module__ == "kubelet_testing.hollow_node"
    assert (pkg.NAME, kubelet.NAME) == ("mine", "mine")
"""
_IMPORT_ALL = """
import importlib, pathlib, kubelet_testing

root = pathlib.Path(kubelet_testing.__file__).parent
for path in sorted(root.rglob("*.py")):
    parts = path.relative_to(root.parent).with_suffix("").parts
    importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
"""


def run(command: list[str], cwd: Path, timeout: float, **environment: str) -> str:
    """Run a command, and return its output; fail with the output if the command fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def build(folder: Path) -> Path:
    """Build the wheel like `make testing-wheel`."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    command = [*pip, "--no-build-isolation", f"--wheel-dir={folder}", str(_SOURCE)]
    run(command, folder, _INSTALL_TIMEOUT, SOURCE_DATE_EPOCH="1700000000")
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


def test_its_own_name_is_all_there_is(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kubelet_testing"}
    assert "kubelet_testing/py.typed" in names
    assert {"LICENSE", "NOTICE"} <= {Path(name).name for name in names if ".dist-info/" in name}


def test_the_same_tree_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_example_passes_beside_packages_of_the_same_names(wheel: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(_EXAMPLE, project)
    for name in ("pkg", "kubelet"):
        (project / name).mkdir()
        (project / name / "__init__.py").write_text('NAME = "mine"\n')
    (project / "test_packages.py").write_text(_OWN_PACKAGES)
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run([*pip, str(wheel), f"{project}[test]"], tmp_path, _INSTALL_TIMEOUT)
    tested = run([python, "-m", "pytest", "-q"], project, _RUN_TIMEOUT)
    assert " passed" in tested
    run([python, "-m", "mypy", "--strict", "."], project, _RUN_TIMEOUT)
    run([python, "-c", _IMPORT_ALL], project, _RUN_TIMEOUT)
