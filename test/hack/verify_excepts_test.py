"""Test the check of broad `except`: the reported faults, and the accepted code."""

from __future__ import annotations

import pytest
from framework.scripts import load_script

verify_excepts = load_script("verify_excepts")


def handler(kind: str, *body: str) -> str:
    lines = ["try:", "    step()", f"except{kind}", *(f"    {line}" for line in body)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", [":", " Exception:", " BaseException as err:", " (OSError, Exception):"])
def test_broad_except_without_a_reason_is_found(kind: str) -> None:
    assert verify_excepts.faults(handler(kind, "failed()")) == [3]


@pytest.mark.parametrize(
    "text",
    [
        handler(" Exception:  # the next round tries again", "failed()"),
        handler(" Exception:", "# The next round tries again.", "failed()"),
        handler(" Exception:", "failed()  # the next round tries again"),
        "with suppress(Exception):  # the next round tries again\n    step()\n",
    ],
)
def test_broad_except_with_a_reason_passes(text: str) -> None:
    assert verify_excepts.faults(text) == []


def test_reason_stands_at_the_beginning() -> None:
    assert verify_excepts.faults(handler(" Exception:", "failed()", "# The next round tries again.", "other()")) == [3]


def test_what_raises_the_same_error_again_needs_no_reason() -> None:
    assert verify_excepts.faults(handler(" BaseException:", "tidy_up()", "raise")) == []
    assert verify_excepts.faults(handler(" Exception as err:", "raise ValueError() from err")) == [3]
    assert verify_excepts.faults(handler(" Exception:", "if fine():", "    raise")) == [3]
    assert verify_excepts.faults(handler(" Exception:", "if fine():", "    return", "raise")) == [3]


def test_narrow_except_passes() -> None:
    assert verify_excepts.faults(handler(" (OSError, ValueError):", "failed()")) == []
    assert verify_excepts.faults(handler(" errors.StatusError:", "failed()")) == []


def test_suppress_of_everything_needs_a_reason() -> None:
    assert verify_excepts.faults("with contextlib.suppress(Exception):\n    step()\n") == [1]
    assert verify_excepts.faults("with contextlib.suppress(OSError), open(path):\n    step()\n") == []
