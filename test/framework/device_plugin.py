"""The device plugin for tests as a process: started, killed, given devices, and asked what was asked of it."""

from __future__ import annotations

import signal
from pathlib import Path

from framework.pods import lines_of
from framework.program import Program


class DevicePlugin:
    """A context manager. The plugin is killed when it ends; until then it can be started and ended at will."""

    def __init__(
        self, folder: Path, resource: str, kubelet_root: Path, probed: bool = False, cdi_kind: str = ""
    ) -> None:
        """One that is probed waits for the kubelet to find it, and does not register by itself."""
        self.resource = resource
        self.state = folder / resource.replace("/", "-")
        self.state.mkdir(parents=True, exist_ok=True)
        self.log = self.state / "log"
        directory = kubelet_root / ("plugins_registry" if probed else "device-plugins")
        directory.mkdir(parents=True, exist_ok=True)
        self.socket = directory / f"{self.state.name}.sock"
        arguments = [f"--resource={resource}", f"--state={self.state}"]
        arguments += [f"--socket={self.socket}", f"--cdi-kind={cdi_kind}"]
        if not probed:
            arguments.append(f"--kubelet-socket={directory / 'kubelet.sock'}")
        self._program = Program("device_plugin", arguments, self.log)

    def offer(self, **devices: bool) -> None:
        """Have these devices from now on, and whether each is healthy."""
        lines = (f"{id} {'Healthy' if healthy else 'Unhealthy'}\n" for id, healthy in devices.items())
        unfinished = self.state / ".devices"
        unfinished.write_text("".join(lines))
        unfinished.rename(self.state / "devices")

    def start(self) -> None:
        """Returns when it serves; it registers by itself."""
        self._program.start()

    def kill(self) -> None:
        """End it at once; twice does nothing."""
        self._program.end(signal.SIGKILL)

    def __enter__(self) -> DevicePlugin:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def calls(self, method: str) -> list[str]:
        """What each call of the method was about, in their order."""
        lines = (line.partition(" ") for line in lines_of(self.state / "calls"))
        return [about for name, _, about in lines if name == method]
