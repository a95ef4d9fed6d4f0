"""Test that each port is given to only one process at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from framework import ports

_SCRIPT = """
import sys
sys.path[:0] = {path!r}
from framework import ports
ports._PORTS = range({port}, {port} + 1)
print(ports.free_port(), flush=True)
sys.stdin.read()
"""


def test_port_that_a_process_was_given_is_no_other_s_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    port = 10_000 + os.getpid() % 8_000  # No concurrent run of this test takes the port.
    script = _SCRIPT.format(path=sys.path, port=port)
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert int(other.stdout.readline()) == port
        monkeypatch.setattr(ports, "_PORTS", range(port, port + 2))
        assert ports.free_port() == port + 1
    assert ports.free_port() == port
