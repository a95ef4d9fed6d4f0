"""Run the driver as a program, which serves until SIGTERM."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from csi_driver import serving
from csi_driver.calls import CallLog
from csi_driver.faults import Faults
from csi_driver.services import CAPABILITIES, Handler, Identity, Node, Registration, Settings
from kubelet.apis.pluginregistration.v1 import api_pb2_grpc as registration_grpc
from pkg.csi_spec import csi_pb2_grpc


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    settings = Settings(
        options.name,
        options.state,
        options.node_id,
        [name for name in options.capabilities.split(",") if name],
        dict(each.split("=", 1) for each in options.topology),
        options.max_volumes,
    )
    for folder in (options.socket.parent, options.state / "volumes", options.state / "faults"):
        folder.mkdir(parents=True, exist_ok=True)
    log = CallLog(options.state / "calls.jsonl")
    handler = Handler(log, Faults(options.state / "faults"))
    server = serving.listen(options.socket)
    csi_pb2_grpc.add_IdentityServicer_to_server(Identity(settings, handler), server)
    csi_pb2_grpc.add_NodeServicer_to_server(Node(settings, handler), server)
    registration = options.registration_dir / f"{options.name}-reg.sock"
    registrar = serving.listen(registration)
    registration_grpc.add_RegistrationServicer_to_server(Registration(settings, options.socket, handler), registrar)
    serving.serve(server, registrar, registration, serving.ended_by_signal())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="csi_driver", description="Serve volumes of this machine to its kubelet.")
    parser.add_argument("--name", required=True, help="Use this name for the driver.")
    parser.add_argument("--socket", type=Path, required=True, help="Serve CSI on this socket.")
    parser.add_argument("--registration-dir", type=Path, required=True, help="Register in this plugin directory.")
    parser.add_argument("--state", type=Path, required=True, help="Keep volumes, the log of calls, and faults here.")
    parser.add_argument("--node-id", default="test-node")
    parser.add_argument(
        "--capabilities", default="stage,stats,expand", help=f"Offer some of {', '.join(CAPABILITIES)}."
    )
    parser.add_argument("--topology", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--max-volumes", type=int, default=0)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
