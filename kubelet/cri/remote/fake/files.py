"""The files that a container's processes would write."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from kubelet.cri.remote.fake.sandboxes import Container


def write_log(container: Container, now: datetime) -> None:
    """One line: nothing runs that could say more."""
    if not container.status.log_path:
        return
    path = Path(container.status.log_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        text = f"no container runs here; the command would be {' '.join(container.argv)!r}"
        file.write(f"{now:%Y-%m-%dT%H:%M:%S.%f}000Z stdout F {text}\n")


def write_termination_message(container: Container) -> None:
    """The message, where the kubelet will look for it."""
    for mount in container.config.mounts:
        if mount.container_path == "/dev/termination-log":
            Path(mount.host_path).write_text(container.behaviour.termination_message)
