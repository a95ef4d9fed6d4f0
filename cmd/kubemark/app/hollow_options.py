"""Define the hollow node's own flags, and the kubelet flags that the hollow node must read itself."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field


@dataclass(slots=True)
class HollowOptions:
    """Hold the options of the hollow node. Durations are in seconds."""

    name: str = field(default_factory=lambda: os.uname().nodename)
    # Empty means a temporary directory.
    root_dir: str = ""
    # This is the endpoint of a fake runtime in another process. Empty means a fake runtime in this process.
    container_runtime_endpoint: str = ""
    latency: list[tuple[str, float]] = field(default_factory=list)
    pull_delay: float = 0.0
    no_events: bool = False
    help: bool = False


def new_parser() -> argparse.ArgumentParser:
    """Return a parser that fills a HollowOptions and leaves unknown arguments."""
    parser = argparse.ArgumentParser(
        prog="kubemark",
        description="A kubelet on a fake container runtime. NO CONTAINER RUNS. The node keeps its "
        "files and certificates in a temporary directory, or in the directory of --root-dir.",
        epilog="All flags of the kubelet, such as --config, --kubeconfig and --v, also work here: see "
        "kubelet --help. Without --config the node listens on the kubelet's default ports.",
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this help")
    parser.add_argument("--name", help="name of the node; the host's name by default")
    parser.add_argument(
        "--root-dir", metavar="DIRECTORY", help="directory of the node's files, which stay after the node has ended"
    )
    parser.add_argument(
        "--container-runtime-endpoint",
        metavar="unix://SOCKET",
        help="use the fake runtime that listens there (python -m kubelet.cri.remote.fake)",
    )
    parser.add_argument(
        "--latency", action="append", type=_latency, metavar="METHOD=SECONDS",
        help="delay the calls of a method by this time; * means every method",
    )  # fmt: skip
    parser.add_argument("--pull-delay", type=float, metavar="SECONDS", help="how long an image pull takes")
    parser.add_argument("--no-events", action="store_true", help="disable the runtime's event stream")
    return parser


def _latency(text: str) -> tuple[str, float]:
    # This import is late because --help must not wait for gRPC.
    from kubelet.cri.remote.fake import faults

    return faults.latency_flag(text)
