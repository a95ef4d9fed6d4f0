"""Write the files that a container's processes would write."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from kubelet.cri.remote.fake.sandboxes import Container


def notice(container: Container) -> str:
    """Return the default line of a container's log."""
    return f"no container runs here; the command would be {' '.join(container.argv)!r}"


def lines_of(text: str) -> list[str]:
    """Split a process's output into lines, including empty ones. An empty text has no lines."""
    return text.removesuffix("\n").split("\n") if text else []


def append_log(container: Container, now: datetime, text: str, stream: str = "stdout") -> None:
    """Append lines to a container's log, and create the log if it does not exist, even for an empty text."""
    if not container.status.log_path:
        return
    path = Path(container.status.log_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for line in lines_of(text):
            file.write(f"{now:%Y-%m-%dT%H:%M:%S.%f}000Z {stream} F {line}\n")


def write_termination_message(container: Container) -> None:
    """Write the termination message to the file that the kubelet reads."""
    for mount in container.config.mounts:
        if mount.container_path == "/dev/termination-log":
            Path(mount.host_path).write_text(container.behaviour.termination_message)
