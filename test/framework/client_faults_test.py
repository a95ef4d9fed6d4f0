"""Test that each call to the API server has its cases, so that no call is forgotten."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from framework import client_calls, client_faults
from framework.client_calls import Call
from framework.containerd import ROOT


def test_calls_are_known() -> None:
    calls, mentions = client_calls.find()
    assert mentions == client_faults.HANDED_ON.keys(), "clients that a file passes on must have an entry in HANDED_ON"
    handed_on = {call for several in client_faults.HANDED_ON.values() for call in several}
    known = client_faults.TRIGGERS.keys() | client_faults.UNIT_TESTS.keys()
    assert calls | handed_on == known


@pytest.mark.parametrize("call", client_faults.UNIT_TESTS, ids=str)
def test_call_has_its_unit_test(call: Call) -> None:
    file, _, name = client_faults.UNIT_TESTS[call].partition("::")
    tried = _tried(Path(ROOT, file), name)
    assert call in tried, f"{name} in {file} has no @faulty_call.cases(…) with {call!r}"


def _tried(file: Path, name: str) -> set[Call]:
    """Return the calls that a test's decorator `faulty_call.cases` names."""
    for function in ast.parse(file.read_text()).body:
        if isinstance(function, ast.FunctionDef) and function.name == name:
            marks = [each for each in function.decorator_list if isinstance(each, ast.Call)]
            named = [each for each in marks if ast.unparse(each.func) == "faulty_call.cases"]
            return {_call(argument) for mark in named for argument in mark.args}
    raise AssertionError(f"{file} has no {name}")


def _call(argument: ast.expr) -> Call:
    assert isinstance(argument, ast.Call) and ast.unparse(argument.func) == "Call", (
        "the arguments must be calls of Call"
    )
    return Call(*(ast.literal_eval(each) for each in argument.args))
