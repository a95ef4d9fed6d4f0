"""Fixtures of the node tests: one containerd for all of them, a kubelet for each that asks."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.containerd import Containerd
from framework.cri import CRIClient

NEEDED = ("containerd", "runc", "iptables", "gcc", "ip")


@pytest.fixture(scope="session")
def containerd() -> Iterator[Containerd]:
    """A containerd with the test images, removed with everything it made when the session ends."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        pytest.fail(
            f"the node tests run as root and need {', '.join(missing or NEEDED)}; hack/setup installs them"
        )
    # Directly below /tmp, for the socket's path must be short.
    run_dir = Path(tempfile.mkdtemp(prefix="kubelet-e2e-"))
    runtime = Containerd(run_dir)
    try:
        runtime.start()
        runtime.import_images()
        yield runtime
    finally:
        runtime.clean()


@pytest.fixture(scope="session")
def cri(containerd: Containerd) -> Iterator[CRIClient]:
    """The tests' own view of the runtime."""
    client = containerd.client()
    yield client
    client.close()
