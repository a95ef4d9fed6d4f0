"""Test that the checks that run after every test can fail a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

TESTS = {
    "leak": ("golang.go(golang.background().wait, 60, name='stuck')", "threads still run: ['stuck']"),
    "crash": ("golang.go(int, 'x', name='bad').join()", "thread bad crashed"),
    "warning": ("warnings.warn('careful')", "UserWarning: careful"),
    "clean": ("golang.go(int, '1', name='good').join()", "1 passed"),
}


@pytest.mark.parametrize("name", TESTS)
def test_what_fails_a_test(name: str, tmp_path: Path) -> None:
    statement, expected = TESTS[name]
    source = (ROOT / "conftest.py").read_text().replace("_GRACE = 30.0", "_GRACE = 0.01")
    (tmp_path / "conftest.py").write_text(source)
    (tmp_path / "some_test.py").write_text(
        f"import warnings\nfrom pkg import golang\n\ndef test_it() -> None:\n    {statement}\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    run = subprocess.run(
        [*command, str(tmp_path / "some_test.py")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )
    assert expected in run.stdout, run.stdout + run.stderr
    assert (run.returncode == 0) is (name == "clean")
