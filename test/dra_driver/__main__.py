"""Run the driver as a program, which serves until SIGTERM."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from csi_driver import serving
from csi_driver.calls import CallLog
from csi_driver.faults import Faults

from dra_driver.services import SERVICES, DRAPlugin, Health, Registration, V1Beta1, Work
from kubelet.apis.dra.v1 import api_pb2_grpc as dra_grpc
from kubelet.apis.dra.v1beta1 import api_pb2_grpc as v1beta1_grpc
from kubelet.apis.dra_health.v1alpha1 import api_pb2_grpc as health_grpc
from kubelet.apis.pluginregistration.v1 import api_pb2_grpc as registration_grpc


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    cdi = options.cdi_dir or options.state / "cdi"
    for folder in (options.socket.parent, options.state / "claims", options.state / "faults", cdi):
        folder.mkdir(parents=True, exist_ok=True)
    log = CallLog(options.state / "calls.jsonl")
    work = Work(options.name, options.pool, options.state, cdi, log, Faults(options.state / "faults"))
    ended = serving.ended_by_signal()
    server = serving.listen(options.socket)
    dra_grpc.add_DRAPluginServicer_to_server(DRAPlugin(work), server)
    v1beta1_grpc.add_DRAPluginServicer_to_server(V1Beta1(work), server)
    health_grpc.add_DRAResourceHealthServicer_to_server(Health(work, ended), server)
    registration = options.registration_dir / f"{options.name}-reg.sock"
    registrar = serving.listen(registration)
    services = options.services.split(",")
    registration_grpc.add_RegistrationServicer_to_server(Registration(work, options.socket, services), registrar)
    serving.serve(server, registrar, registration, ended)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dra_driver", description="Prepare claims of devices for a kubelet.")
    parser.add_argument("--name", required=True, help="Use this name for the driver.")
    parser.add_argument("--socket", type=Path, required=True, help="Serve on this socket.")
    parser.add_argument("--registration-dir", type=Path, required=True, help="Register in this plugin directory.")
    parser.add_argument("--state", type=Path, required=True, help="Keep devices, the log of calls, and faults here.")
    parser.add_argument("--cdi-dir", type=Path, help="Write CDI specs to this directory of the runtime.")
    parser.add_argument("--pool", default="test-node", help="Report devices of this pool.")
    parser.add_argument("--services", default=",".join(SERVICES), help="Offer these services to the kubelet.")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
