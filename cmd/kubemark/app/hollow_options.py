"""The hollow node's own flags, and the kubelet's flags that the hollow node has to know itself."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field


@dataclass(slots=True)
class HollowOptions:
    """Durations are seconds."""

    name: str = field(default_factory=lambda: os.uname().nodename)
    # Empty: a temporary directory.
    root_dir: str = ""
    # A fake runtime in a process of its own; empty: in this one.
    container_runtime_endpoint: str = ""
    latency: list[tuple[str, float]] = field(default_factory=list)
    pull_delay: float = 0.0
    no_events: bool = False
    help: bool = False


def new_parser() -> argparse.ArgumentParser:
    """Parses into a HollowOptions, and leaves what it does not know."""
    parser = argparse.ArgumentParser(
        prog="kubemark",
        description="A kubelet on a fake container runtime. NO CONTAINER RUNS. The node keeps its "
        "files and certificates in a temporary directory, or in the directory of --root-dir.",
        epilog="All flags of the kubelet are flags of this too, --config, --kubeconfig and --v among them: see "
        "kubelet --help. Without --config it listens on the kubelet's usual ports.",
        allow_abbrev=False,
        add_help=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this")
    parser.add_argument("--name", help="name of the node; the host's name by default")
    parser.add_argument("--root-dir", metavar="DIRECTORY", help="keep the node's files there, also after it has ended")
    parser.add_argument(
        "--container-runtime-endpoint",
        metavar="unix://SOCKET",
        help="use the fake runtime that listens there (python -m kubelet.cri.remote.fake)",
    )
    parser.add_argument(
        "--latency", action="append", type=_latency, metavar="METHOD=SECONDS",
        help="let calls of a method take so much longer; * is every method",
    )  # fmt: skip
    parser.add_argument("--pull-delay", type=float, metavar="SECONDS", help="how long an image pull takes")
    parser.add_argument("--no-events", action="store_true", help="let the runtime have no event stream")
    return parser


def _latency(text: str) -> tuple[str, float]:
    # Imported late: --help must not wait for gRPC.
    from kubelet.cri.remote.fake import faults

    return faults.latency_flag(text)
