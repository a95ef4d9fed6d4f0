"""Test the signals that end the kubelet's process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WAITS = """
import signal, threading
from kubelet_cmd.kubelet.app.signals import ShutdownSignal

waiting = ShutdownSignal()
told = threading.Event()

def interrupted():
    signal.pthread_kill(threading.get_ident(), signal.Signals({number}))
    told.wait()

threading.Thread(target=interrupted, daemon=True).start()
print(waiting.wait({timeout}), waiting.received)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_is_noticed_whichever_thread_it_interrupts(number: signal.Signals) -> None:
    """A signal is noticed even if the kernel delivers it to another thread than the waiting one."""
    script = WAITS.format(number=int(number), timeout=20)
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["True", str(int(number))]
