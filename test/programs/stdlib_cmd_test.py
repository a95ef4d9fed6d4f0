"""Test that the checkout's package `cmd` does not break users of the standard library's `cmd`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


def _python(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=_ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_pdb_works_from_the_checkout(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("answer = 41 + 1\nprint('done')\n")
    result = _python("-m", "pdb", str(script), stdin="next\np answer\ncontinue\nquit\n")
    assert result.returncode == 0, result.stderr
    assert "42" in result.stdout
    assert "done" in result.stdout


def test_standard_names_are_there() -> None:
    result = _python("-c", "import cmd; print(cmd.__file__, cmd.Cmd.prompt, cmd.__all__)")
    assert result.returncode == 0, result.stderr
    assert str(_ROOT / "cmd" / "__init__.py") in result.stdout
    assert "(Cmd)" in result.stdout


@pytest.mark.parametrize("module", ["kubelet", "pkg"])
def test_top_level_packages_are_this_checkouts(module: str) -> None:
    result = _python("-c", f"import cmd, {module}; print({module}.__path__[0])")
    assert result.stdout.strip() == str(_ROOT / module), result.stderr
