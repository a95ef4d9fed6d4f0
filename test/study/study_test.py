"""Test that the commands of the lessons in docs/study print what the lessons say.

Each block `sh` of a lesson runs in a shell of its own, in the checkout. The block `text` after it is the output: `…`
stands for text that differs from run to run.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "study"
INDEX = FOLDER / "index.md"
LESSONS = sorted(FOLDER.glob("[0-9][0-9]-*.md"))
SECTIONS = ["Question", "Open side by side", "Experiment", "What you saw", "Take home"]
# The machine may be busy, so this is many times what an experiment takes. In seconds.
TIMEOUT = 180.0


class Block(NamedTuple):
    """Hold the commands of an experiment and the output that the lesson prints below them."""

    commands: str
    output: str


def blocks(lesson: Path) -> list[Block]:
    """Return the experiments of a lesson; fail if the output of one is missing."""
    found: list[Block] = []
    commands = ""
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", lesson.read_text(), re.DOTALL | re.MULTILINE):
        if language == "sh":
            assert not commands, f"{lesson.name}: no output follows these commands:\n{commands}"
            commands = text
        elif language == "text" and commands:
            found.append(Block(commands, text))
            commands = ""
    assert not commands, f"{lesson.name}: no output follows these commands:\n{commands}"
    return found


def run(commands: str, folder: Path) -> str:
    """Run commands as a reader does, and return what they print; fail if one fails or leaves a process behind."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KUBECONFIG")}
    with (folder / "output").open("w+") as output:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=ROOT,
            env={**environment, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(TIMEOUT)
        finally:
            left = end_group(process.pid)
            process.wait()
        output.seek(0)
        printed = output.read()
    assert code == 0, f"{commands}\nexits with code {code}:\n{printed}"
    assert not left, f"{commands}\nleaves processes behind"
    return printed


def end_group(group: int) -> bool:
    """Kill what still runs of a process group; report whether anything did."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def matches(expected: str, line: str) -> bool:
    """Report whether a line is the expected one, in which `…` stands for any text."""
    return re.fullmatch(".*".join(re.escape(part) for part in expected.split("…")), line) is not None


def difference(expected: str, printed: str) -> str:
    """Return the difference between the two outputs, or an empty string if they match."""
    wanted, found = expected.splitlines(), printed.splitlines()
    if len(wanted) == len(found) and all(map(matches, wanted, found)):
        return ""
    return "\n".join(difflib.ndiff(wanted, found))


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_experiments_print_what_the_lesson_says(lesson: Path) -> None:
    experiments = blocks(lesson)
    assert experiments
    for number, experiment in enumerate(experiments):
        # The path of a socket may have only 107 characters, which pytest's own folders leave no room for.
        with tempfile.TemporaryDirectory(prefix="study.") as name:
            folder = Path(name)
            printed = run(experiment.commands, folder)
            left = [each.name for each in folder.iterdir() if each.name != "output"]
        wrong = difference(experiment.output, printed)
        assert not wrong, f"{lesson.name}, experiment {number + 1}:\n{wrong}"
        assert not left, f"{lesson.name}, experiment {number + 1} leaves files behind: {left}"


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_each_lesson_has_the_same_sections(lesson: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", lesson.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^## (.*)$", prose, re.MULTILINE) == SECTIONS


def test_index_lists_all_lessons() -> None:
    text = INDEX.read_text()
    names = [lesson.stem for lesson in LESSONS]
    assert re.findall(r"^[0-9]+\. \[[^]]*\]\(([\w-]+)\.md\)", text, re.MULTILINE) == names
    toctree = re.search(r"^```\{toctree\}\n:hidden:\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert toctree is not None and toctree[1].split() == names


def test_matching_of_outputs() -> None:
    assert not difference("a … b\nc\n", "a 12 3 b\nc\n")
    assert difference("a\n", "a\nb\n")
    assert difference("a.b\n", "acb\n")
