"""Every regular expression takes time in proportion to what it reads, whoever has made that.

Most of them meet what pods, clients, API objects or the runtime say, and one that takes quadratic time holds the
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
# Characters of each input, and the processor time that an expression may take for them, in seconds: what is linear
# takes some milliseconds at most, what is not at least a second.
LENGTH = 40_000
LIMIT = 0.5
UNITS = [*' a01-.:/,="([\\\n', "$(", "a.", "a-", "1.", "a/", " a", "x\n"]
# What may be worse, and why that does no harm.
BOUNDED = {
    "kubelet.cadvisor.oomparser._LEGACY_CONTAINER": "a line of the kernel's log has 8 KiB at most",
    "kubelet.cri.remote.fake.behaviour._TERMINATION_MESSAGE": "only tests have the fake runtime",
    "pkg.volume.iscsi.iscsi_util._IFACE": "a path has 4 KiB at most",
}
DEFINITION = re.compile(r"^(_?[A-Z][A-Z_0-9]*)(?:: Final)? = re\.compile\(", re.MULTILINE)


def expressions() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes], set[str]]]:
    """Name, expression and the methods by which it is used, of all that modules define."""
    for path in sorted(itertools.chain(ROOT.glob("kubelet/**/*.py"), ROOT.glob("pkg/**/*.py"))):
        source = path.read_text()
        if path.name.endswith("_test.py"):
            continue
        for name in DEFINITION.findall(source):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            methods = set(re.findall(rf"\b{name}\.(match|search|fullmatch|finditer|findall|sub|split)\(", source))
            yield f"{module}.{name}", getattr(importlib.import_module(module), name), methods


def inputs(pattern: str) -> Iterator[str]:
    """Much of the same, behind what may make the expression begin, and before what makes it fail."""
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
            pattern = pattern.decode("latin-1")  # It may be of bytes that are no text.
        for method in sorted(methods or {"search"}):
            print(name, method, flush=True)
            for text in inputs(pattern):
                # Its signal ends the process, in the middle of an expression too.
                signal.setitimer(signal.ITIMER_PROF, LIMIT)
                use(expression, method, text)
        # The next one's module may have to be loaded first.
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
