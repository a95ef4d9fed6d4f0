"""A hollow node as a process, on a fake runtime that stays in the test's hands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

from kubelet.cri.remote import fake

ROOT = Path(__file__).resolve().parents[2]
_STOP_TIMEOUT = 10.0


class HollowNode:
    """`python -m cmd.kubemark` with these flags besides; runs within a `with` block.

    What it is given in `manifests` it runs, as static pods; `runtime` shows what became of them.
    """

    def __init__(self, directory: Path, *flags: str) -> None:
        self.runtime = fake.FakeRuntime()
        self.manifests = directory / "manifests"
        self.root_directory = directory / "root"
        self.log = directory / "kubelet.log"
        self._server = fake.FakeServer(f"unix://{directory}/cri.sock", self.runtime)
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "cmd.kubemark",
            f"--container-runtime-endpoint={self._server.endpoint}",
            f"--root-dir={self.root_directory}",
            f"--pod-manifest-path={self.manifests}",
            "--healthz-port=0",
            "--read-only-port=0",
            "--v=4",
            *self._flags,
        ]

    def __enter__(self) -> HollowNode:
        self.manifests.mkdir()
        self._server.start()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(self.command(), cwd=ROOT, stdout=log, stderr=log)
        return self

    def called(self, method: str) -> int:
        """How often the runtime was called so. AssertionError when the kubelet has ended."""
        assert self._process is not None and self._process.poll() is None, "the kubelet has ended"
        return self.runtime.recorder.counts.get(method, 0)

    def stop(self) -> int:
        """End it as an operator does; returns its exit code. Raises subprocess.TimeoutExpired."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(_STOP_TIMEOUT)

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            self._server.stop()
            self.runtime.close()
            if err is not None:
                err.add_note(self.log.read_text(errors="replace")[-20_000:])
