"""Test the list of differences from the Go kubelet: the parsing of records, their names, and the reported faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import divergences
import pytest
from divergences import Divergence, Malformed

RECORD = Divergence(
    path="kubelet/cm/a.py",
    name="f",
    kind="safer",
    setting="",
    here="it waits no longer.",
    go_file="pkg/kubelet/pleg/generic.go",
    go_symbol="(*GenericPLEG).Relist",
    go="it waits: for ever.",
    why="nobody else should.",
    tests=("a_test.py:test_f", "test/b_test.py:A.test_b"),
)
TEXT = (
    "DIVERGES (safer): it waits no longer. Go: pkg/kubelet/pleg/generic.go, (*GenericPLEG).Relist: it waits: for ever. "
    "Why: nobody else should. Test: a_test.py:test_f, test/b_test.py:A.test_b"
)


@pytest.mark.parametrize(
    ("source", "name", "text"),
    [
        pytest.param('"""What it is.\n\nDIVERGES: Go has none.\n"""\n', "", "Go has none.", id="of a module"),
        pytest.param(
            'class A:\n    def f(self):\n        """Does.\n\n        DIVERGES: here\n        and there.\n\n'
            '        Or.\n        """\n',
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
    assert list(divergences.in_source(source)) == [(name, f"DIVERGES: {text}")]


def test_two_records_in_one_comment() -> None:
    source = "def f():\n    # DIVERGES: one.\n    # DIVERGES: two.\n    return 1\n"
    assert [text for _, text in divergences.in_source(source)] == ["DIVERGES: one.", "DIVERGES: two."]


def test_collects_from_code_and_not_from_tests(tmp_path: Path) -> None:
    for directory in ("kubelet", "test"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory / "a.py").write_text('"""DIVERGES: so."""\n')
    (tmp_path / "kubelet/a_test.py").write_text('"""DIVERGES: so."""\n')
    assert divergences.collect(tmp_path) == [Malformed("kubelet/a.py", "", "DIVERGES: so.")]


def test_parts_of_a_record() -> None:
    assert divergences.parse(RECORD.path, RECORD.name, TEXT) == RECORD
    with_setting = TEXT.replace("(safer)", "(preference: --wait)")
    assert divergences.parse(RECORD.path, RECORD.name, with_setting) == replace(
        RECORD, kind="preference", setting="--wait"
    )


@pytest.mark.parametrize("label", ["Go: ", "Why: ", "Test: ", " (safer)", ".go", ", (*GenericPLEG).Relist"])
def test_record_that_lacks_a_part(label: str) -> None:
    text = TEXT.replace(label, "", 1)
    assert divergences.parse(RECORD.path, RECORD.name, text) == Malformed(RECORD.path, RECORD.name, text)
    (fault,) = divergences.faults(Malformed(RECORD.path, RECORD.name, text))
    assert fault.startswith("expected `DIVERGES (kind): …")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"kind": "better"}, "'better' is not a kind; the kinds are platform, fault of Go, safer, preference"),
        ({"kind": "preference"}, "a preference, and no other kind, must name the setting that turns it on"),
        ({"kind": "preference", "setting": "--wait"}, None),
        ({"setting": "--wait"}, "a preference, and no other kind, must name the setting that turns it on"),
        ({"go_file": "pkg/kubelet/pleg/special.go"}, "Go has no file pkg/kubelet/pleg/special.go"),
        ({"go_file": "k8s.io/client-go/rest/request.go", "go_symbol": "(*Request).Do"}, None),
        ({"go_symbol": "Relist"}, "pkg/kubelet/pleg/generic.go of Go does not declare Relist"),
        ({"tests": ("a_test.py:test_g",)}, "there is no test a_test.py:test_g"),
        ({"tests": ("c_test.py:test_f",)}, "there is no test c_test.py:test_f"),
    ],
)
def test_faults(tmp_path: Path, changes: dict[str, Any], fault: str | None) -> None:
    (tmp_path / "kubelet/cm").mkdir(parents=True)
    (tmp_path / "kubelet/cm/a_test.py").write_text("def test_f() -> None: ...\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test/b_test.py").write_text("class A:\n    def test_b(self) -> None: ...\n")
    assert list(divergences.faults(replace(RECORD, **changes), tmp_path)) == ([] if fault is None else [fault])


def test_update_keeps_what_is_written_by_hand() -> None:
    once = divergences.updated(f"# By hand\n{divergences.MARKER}\nold", [RECORD])
    assert once.startswith(f"# By hand\n{divergences.MARKER}\n")
    assert "| safer | 1 |" in once
    assert "- [kubelet/cm/a.py](../kubelet/cm/a.py) `f`, **safer**: it waits no longer.\n" in once
    assert "  - Go, `(*GenericPLEG).Relist` in pkg/kubelet/pleg/generic.go: it waits: for ever.\n" in once
    assert "  - Why: nobody else should.\n" in once
    assert "  - Test: `test_f` in a_test.py, `A.test_b` in test/b_test.py\n" in once
    assert "old" not in once
    assert divergences.updated(once, [RECORD]) == once


def test_document_without_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the line"):
        divergences.updated("# By hand\n", [])
