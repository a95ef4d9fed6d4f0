"""Run the tests' device plugin as a process, set its devices, and read its call log."""

from __future__ import annotations

import signal
from pathlib import Path

from framework.pods import lines_of
from framework.program import Program


class DevicePlugin:
    """Run the device plugin within a `with` block. Within the block it can be killed and started at any time."""

    def __init__(
        self, folder: Path, resource: str, kubelet_root: Path, probed: bool = False, cdi_kind: str = ""
    ) -> None:
        """Create the plugin. With `probed`, it waits until the kubelet finds it. Otherwise it registers itself."""
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
        """Set the plugin's devices. The value of each keyword says whether the device is healthy."""
        lines = (f"{id} {'Healthy' if healthy else 'Unhealthy'}\n" for id, healthy in devices.items())
        unfinished = self.state / ".devices"
        unfinished.write_text("".join(lines))
        unfinished.rename(self.state / "devices")

    def start(self) -> None:
        """Start the plugin and return when it serves. It registers itself."""
        self._program.start()

    def kill(self) -> None:
        """Kill the plugin. If it does not run, the call does nothing."""
        self._program.end(signal.SIGKILL)

    def __enter__(self) -> DevicePlugin:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def calls(self, method: str) -> list[str]:
        """Return the subject of each call of the method, in the order of the calls."""
        lines = (line.partition(" ") for line in lines_of(self.state / "calls"))
        return [about for name, _, about in lines if name == method]
