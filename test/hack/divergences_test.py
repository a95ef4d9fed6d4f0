"""The list of differences from Go: what of a comment or docstring goes in, and under which name."""

from __future__ import annotations

from pathlib import Path

import divergences
import pytest


@pytest.mark.parametrize(
    ("source", "name", "text"),
    [
        pytest.param('"""What it is.\n\nDIVERGES: Go has none.\n"""\n', "", "Go has none.", id="of a module"),
        pytest.param(
            'class A:\n    def f(self):\n        """Does.\n\n        DIVERGES: here\n        and there.\n        """\n',
            "A.f",
            "here and there.",
            id="paragraph of a docstring",
        ),
        pytest.param(
            'def f():\n    """Does. DIVERGES: not."""\n    return 1\n', "f", "not.", id="docstring of one line"
        ),
        pytest.param(
            "def f():\n    # DIVERGES: one\n    # two.\n    return 1  # three\n", "f", "one two.", id="comment"
        ),
        pytest.param("import os\n\n# DIVERGES: why.\nMASK = 1\n", "MASK", "why.", id="above a constant"),
        pytest.param("import os\n\n# DIVERGES: why.\ndef f(): ...\n", "f", "why.", id="above a function"),
    ],
)
def test_in_source(source: str, name: str, text: str) -> None:
    assert list(divergences.in_source(source)) == [(name, text)]


def test_collects_from_code_and_not_from_tests(tmp_path: Path) -> None:
    for directory in ("kubelet", "test"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "a.py").write_text('"""DIVERGES: so."""\n')
    (tmp_path / "kubelet/a_test.py").write_text('"""DIVERGES: so."""\n')
    assert divergences.collect(tmp_path) == [("kubelet/a.py", "", "so.")]


def test_update_keeps_what_is_written_by_hand() -> None:
    found = [divergences.Divergence("pkg/a.py", "f", "so.")]
    once = divergences.updated(f"# By hand\n{divergences.MARKER}\nold", found)
    assert once.startswith(f"# By hand\n{divergences.MARKER}\n")
    assert "- [pkg/a.py](../pkg/a.py) `f`: so.\n" in once
    assert "old" not in once
    assert divergences.updated(once, found) == once


def test_document_without_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the line"):
        divergences.updated("# By hand\n", [])
