"""Run the plugin as a program, which serves until SIGTERM.

In the program's state directory, the file `devices` has a line for each device, with its ID and Healthy or Unhealthy,
and may change at any time. The files `hang` and `fail` apply to the next calls of Allocate. The plugin writes a line
for each call to `calls`.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import grpc
from csi_driver import serving

from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.cm.devicemanager.plugin.v1beta1.stub import Stub

# The plugin checks the files after this many seconds.
_PERIOD = 0.05


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="device_plugin", description="Offer devices of this machine to its kubelet.")
    parser.add_argument("--resource", required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True, help="Serve on this socket.")
    parser.add_argument(
        "--kubelet-socket",
        type=Path,
        help="Register on this socket. Without it, the kubelet must find the plugin.",
    )
    parser.add_argument("--cdi-kind", default="", help="Allocate CDI devices of this kind instead of device nodes.")
    options = parser.parse_args(arguments)
    plugin = Plugin(options.resource, options.state, options.socket, options.cdi_kind)
    plugin.run(serving.ended_by_signal(), options.kubelet_socket)
    return 0


class Plugin:
    def __init__(self, resource: str, state: Path, socket: Path, cdi_kind: str) -> None:
        self._state = state
        self._cdi_kind = cdi_kind
        self._library = state / "library"
        self._library.mkdir(exist_ok=True)
        (self._library / "version").write_text("7\n")
        self._stub = Stub([], socket, resource, pre_start_container=True)
        self._stub.alloc_func = self._allocate
        self._stub.pre_start_func = lambda ids: self._note(f"PreStartContainer {' '.join(ids)}")

    def run(self, ended: threading.Event, kubelet_socket: Path | None) -> None:
        """Report the devices as they change, and register with every new kubelet."""
        devices = registered = None
        self._stub.start()
        print("serving", flush=True)
        while not ended.wait(_PERIOD):
            if (now := (self._state / "devices").read_text()) != devices:
                devices = now
                self._stub.update(*map(_device, devices.splitlines()))
            kubelet = _identity(kubelet_socket)
            if kubelet_socket is not None and kubelet is not None and kubelet != registered:
                registered = kubelet if self._register(kubelet_socket) else None
        self._stub.stop()

    def _register(self, kubelet_socket: Path) -> bool:
        # The kubelet has removed all sockets that it found.
        self._stub.stop()
        self._stub.start()
        try:
            self._stub.register(kubelet_socket)
        except grpc.RpcError as err:
            self._note(f"refused {err}")
            return False
        return True

    def _allocate(
        self, request: pluginapi.AllocateRequest, devices: Mapping[str, pluginapi.Device]
    ) -> pluginapi.AllocateResponse:
        answer = pluginapi.AllocateResponse()
        for asked in request.container_requests:
            self._note(f"Allocate {' '.join(asked.devices_ids)}")
            while (self._state / "hang").exists():
                time.sleep(_PERIOD)
            if (self._state / "fail").exists():
                raise RuntimeError("no allocation today")
            given = answer.container_responses.add(envs={"DEVICES": ",".join(asked.devices_ids)})
            given.mounts.add(container_path="/opt/device", host_path=str(self._library), read_only=True)
            for id in asked.devices_ids:
                if self._cdi_kind:
                    given.cdi_devices.add(name=f"{self._cdi_kind}={id}")
                else:
                    given.devices.add(host_path="/dev/zero", container_path=f"/dev/{id}", permissions="rw")
        return answer

    def _note(self, call: str) -> None:
        with (self._state / "calls").open("a") as calls:
            calls.write(f"{call}\n")


def _device(line: str) -> pluginapi.Device:
    id, health = line.split()
    return pluginapi.Device(ID=id, health=health)


def _identity(socket: Path | None) -> tuple[int, int] | None:
    """Return a value that distinguishes a socket from an earlier one at the same path."""
    try:
        found = None if socket is None else os.stat(socket)
    except FileNotFoundError:
        return None
    return None if found is None else (found.st_ino, found.st_ctime_ns)


if __name__ == "__main__":
    raise SystemExit(main())
