"""Test that every regular expression takes linear time for any input.

Most inputs come from pods, clients, API objects or the runtime. An expression that takes quadratic time blocks the
interpreter, and with it the whole kubelet, for minutes.
"""

from __future__ import annotations

import importlib
import itertools
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Each input has this length, and an expression may take this CPU time, in seconds, for it: a linear one takes some
# milliseconds, any other at least a second.
LENGTH = 40_000
LIMIT = 0.5
UNITS = [*' a01-.:/,="([\\\n', "$(", "a.", "a-", "1.", "a/", " a", "x\n"]
# These expressions may be slower. Each value gives the reason why the expression does no harm.
BOUNDED = {
    "kubelet.cadvisor.oomparser._LEGACY_CONTAINER": "a line of the kernel's log has 8 KiB at most",
    "kubelet.cri.remote.fake.behaviour._TERMINATION_MESSAGE": "only tests have the fake runtime",
    "pkg.volume.iscsi.iscsi_util._IFACE": "a path has 4 KiB at most",
}
DEFINITION = re.compile(r"^(_?[A-Z][A-Z_0-9]*)(?:: Final)? = re\.compile\(", re.MULTILINE)


def expressions() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes], set[str]]]:
    """Yield the name, the expression and the used methods of each expression that a module defines."""
    for path in sorted(itertools.chain(ROOT.glob("kubelet/**/*.py"), ROOT.glob("pkg/**/*.py"))):
        source = path.read_text()
        if path.name.endswith("_test.py"):
            continue
        for name in DEFINITION.findall(source):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            methods = set(re.findall(rf"\b{name}\.(match|search|fullmatch|finditer|findall|sub|split)\(", source))
            yield f"{module}.{name}", getattr(importlib.import_module(module), name), methods


def inputs(pattern: str) -> Iterator[str]:
    """Yield long repetitions, after text that may start a match, and before text that makes the match fail."""
    literals = re.findall(r"[A-Za-z<>:=\"' -]{3,}", pattern)
    units = [*UNITS, *literals]
    for unit in units:
        for prefix in ("", *literals[:3], "a:", "1", "(", '"'):
            yield prefix + unit * (LENGTH // len(unit)) + "\0"


def use(expression: re.Pattern[str] | re.Pattern[bytes], method: str, text: str) -> None:
    given = text.encode() if isinstance(expression.pattern, bytes) else text
    match method:
        case "sub":
            expression.sub(given[:0], given)  # type: ignore[arg-type]
        case "finditer":
            for _ in expression.finditer(given):  # type: ignore[arg-type]
                pass
        case _:
            getattr(expression, method)(given)


def main() -> None:
    for name, expression, methods in expressions():
        if name in BOUNDED:
            continue
        pattern = expression.pattern
        if isinstance(pattern, bytes):
            pattern = pattern.decode("latin-1")  # The expression may match bytes that are not valid text.
        for method in sorted(methods or {"search"}):
            print(name, method, flush=True)
            for text in inputs(pattern):
                # The timer's signal ends the process, even within an expression.
                signal.setitimer(signal.ITIMER_PROF, LIMIT)
                use(expression, method, text)
        # The next expression's module may have to be imported first.
        signal.setitimer(signal.ITIMER_PROF, 0)


def test_no_expression_is_worse_than_linear() -> None:
    finished = subprocess.run([sys.executable, __file__], cwd=ROOT, capture_output=True, text=True, check=False)
    tried = finished.stdout.splitlines()
    assert finished.returncode == 0, f"{tried[-1:]} took too long: {finished.stderr}"
    assert len(tried) > 50


def test_what_is_bounded_is_there() -> None:
    assert set(BOUNDED) <= {name for name, _, _ in expressions()}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
