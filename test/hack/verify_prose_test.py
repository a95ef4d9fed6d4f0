"""Test which texts the prose check finds fault with, and which sample hack/prose_sample draws."""

from __future__ import annotations

from pathlib import Path

import prose
import pytest
from framework.scripts import load_script

verify_prose = load_script("verify_prose")
prose_sample = load_script("prose_sample")

SOURCE = '''#!/usr/bin/env python3
"""Run pods."""

# This comment has
# two lines.
LIMIT = 3  # seconds


def run(pod):
    """Run one pod.

    Go: none
    """
    raise ValueError(f"cannot run pod {pod} here")  # noqa: B904
'''


def faults(text: str) -> list[str]:
    path = prose.ROOT / "pkg/nothing.py"
    unit = prose.Unit(path, prose.Kind.DOCSTRING, 1, 1, "run", text)
    return list(verify_prose.faults_of(unit))


def test_prose_is_docstrings_blocks_of_comments_and_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    path = tmp_path / "run"
    path.write_text(SOURCE)
    assert prose.is_python(path)
    assert [(unit.kind.value, unit.line, unit.owner, unit.text) for unit in prose.units(path)] == [
        ("docstring", 2, "module", "Run pods."),
        ("comment", 4, "", "This comment has\ntwo lines."),
        ("comment", 6, "", "seconds"),
        ("docstring", 10, "run", "Run one pod.\n\nGo: none"),
        ("message", 14, "", "cannot run pod {} here"),
    ]


@pytest.mark.parametrize(
    "text",
    ["Whether the pod runs.", "Runs the pod.", "The pod's worker.", "As the runtime has it.", "Raises ValueError."],
)
def test_docstring_without_an_imperative_is_found(text: str) -> None:
    (fault,) = faults(text)
    assert "write an imperative verb" in fault


@pytest.mark.parametrize("text", ["Run the pod.", "Report whether the pod runs.", "Process the queue.", "Have it run."])
def test_docstring_with_an_imperative_passes(text: str) -> None:
    assert faults(text) == []


def test_docstring_of_a_test_states_what_must_hold() -> None:
    unit = prose.Unit(prose.ROOT / "pkg/some_test.py", prose.Kind.DOCSTRING, 1, 1, "test_run", "The pod runs.")
    assert list(verify_prose.faults_of(unit)) == []


@pytest.mark.parametrize("text", ["Keep what can be had.", "Stop for\ngood.", "Keep the pods, whoever wants them."])
def test_phrase_of_the_old_idiom_is_found(text: str) -> None:
    (fault,) = faults(text)
    assert ": write " in fault


def test_phrase_in_code_passes() -> None:
    assert faults("Return the field `is none` of the pod.") == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("guards the fields below", True),
        ("The lock guards the fields below.", False),
        ("seconds", False),
        ("---- The life of a pod ----", False),
        ("These are the reasons. Go: containerKillReason", False),
    ],
)
def test_comment_of_several_words_ends_with_a_full_stop(text: str, wrong: bool) -> None:
    unit = prose.Unit(prose.ROOT / "pkg/nothing.py", prose.Kind.COMMENT, 1, 1, "", text)
    assert bool(list(verify_prose.faults_of(unit))) is wrong


def test_misspelt_word_is_found() -> None:
    path = prose.ROOT / ".build/misspelt.py"
    path.parent.mkdir(exist_ok=True)
    misspelt = "reci" + "eves"
    path.write_text(f"# The kubelet {misspelt} pods.\n")
    try:
        assert f"{misspelt} ==> receives" in "\n".join(verify_prose.spelling([path]))
    finally:
        path.unlink()


def test_same_seed_draws_the_same_sample() -> None:
    first = prose_sample.drawn(["hack"], 5, seed=3)
    assert len(first) == 5
    assert prose_sample.drawn(["hack"], 5, seed=3) == first
    assert prose_sample.drawn(["hack"], 5, seed=4) != first
