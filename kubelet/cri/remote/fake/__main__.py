"""Run the fake runtime in its own process."""

from __future__ import annotations

import argparse
import signal
import threading

from kubelet.cri.remote import fake
from kubelet.cri.remote.fake.faults import latency_flag


def main() -> None:
    args = _parser().parse_args()
    runtime = fake.FakeRuntime(images_present=args.image)
    runtime.events_enabled = not args.no_events
    runtime.images.pull_delay = args.pull_delay
    runtime.write_logs = args.write_logs
    for method, seconds in args.latency:
        runtime.faults.latency(method, seconds)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with fake.FakeServer(f"unix://{args.socket}", runtime):
        print(f"fake container runtime on unix://{args.socket}: no container runs", flush=True)
        stop.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m kubelet.cri.remote.fake",
        description="A CRI v1 server that keeps sandboxes and containers in memory. No container runs.",
    )
    parser.add_argument("--socket", required=True, help="listen on this unix socket")
    parser.add_argument("--image", action="append", default=[], help="provide this image from the start")
    parser.add_argument(
        "--latency",
        action="append",
        default=[],
        type=latency_flag,
        metavar="METHOD=SECONDS",
        help="delay calls of a method by this time; * means every method",
    )
    parser.add_argument(
        "--pull-delay", type=float, default=0.0, metavar="SECONDS", help="make each image pull take this time"
    )
    parser.add_argument("--no-events", action="store_true", help="do not implement GetContainerEvents")
    parser.add_argument("--write-logs", action="store_true", help="write a line to each container's log file")
    return parser


if __name__ == "__main__":
    main()
