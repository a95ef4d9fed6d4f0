"""Test `kubelet explain pod`, `node` and `evictions`: the requests, and the output."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubelet_cmd.kubelet.app import server

from kubelet import kubeletconfig
from pkg import golang, klog
from pkg.golang import http

NOW = 1_800_000_000.0
EXPLANATION = {
    "state": "stuck",
    "cause": "CrashLoop",
    "sentence": "Its container app ended with exit code 1.",
    "until": NOW + 12,
    "until_what": "next start",
    "advice": "look at its log",
    "evidence": [
        {"source": "last exit", "text": "app: exit\ncode 1", "at": NOW - 5, "count": 0},
        {"source": "event BackOff", "text": "Back-off", "at": NOW - 90, "count": 3},
        {"source": "condition", "text": "no time", "at": None, "count": 0},
    ],
}
WORKER = {
    "waits_for": "waits to try again",
    "until": NOW + 12,
    "step_began": None,
    "phase": "sync",
    "steps": 4,
    "failures": 2,
}


def line(stage: str, began: float, ended: float | None, detail: str = "") -> dict[str, Any]:
    return {"stage": stage, "began": NOW + began, "ended": None if ended is None else NOW + ended, "detail": detail}


POD = {
    "namespace": "ns",
    "name": "shop",
    "explanation": EXPLANATION,
    "worker": WORKER,
    "containers": [
        {
            "name": "app",
            "kind": "init",
            "state": "waiting",
            "reason": "CrashLoopBackOff",
            "since": None,
            "ready": False,
            "restarts": 1,
        }
    ],
    "timeline": [
        line("seen", -10, -10),
        line("sandbox", -10, -5),
        line("create", -5, None, "app"),
        line("ready", -2, -2),
        line("exit", -1, -1),
    ],
}
NODE = {
    "name": "node",
    "version": "v1.36.2",
    "standalone": True,
    "began": NOW - 3600,
    "sentence": "The node is unhealthy: no disk.",
    "problems": [{"what": "runtime", "text": "no disk", "serious": True}],
}
ANSWER: dict[str, Any] = {
    "now": NOW,
    "node": NODE,
    "pods": [POD],
    "pleg": {"last_at": NOW - 1, "p50": 0.004, "p99": 0.02},
    "calls": {"in_flight": [{"operation": "pull_image", "pod": "ns/shop", "began": NOW - 3}]},
}


def threshold(**fields: Any) -> dict[str, Any]:
    amounts = dict.fromkeys(("quantity", "less_than", "reclaim_until", "until"), "100Mi")
    quiet = {**amounts, "grace_period": 0.0, "met": False, "acts_at": None}
    return {**quiet, **fields}


def candidate(number: int, spared: bool = False) -> dict[str, Any]:
    return {"pod": f"ns/pod-{number}", "why": f"priority {number}", "spared": spared}


EVICTIONS: dict[str, Any] = {
    "now": NOW,
    "sentence": "The node is short of memory (memory.available): ns/pod-1 would be evicted now.",
    "conditions": [
        {"type": "MemoryPressure", "not_before": NOW + 60},
        {"type": "PIDPressure", "not_before": NOW - 60},
    ],
    "broken_limits": [{"pod": "ns/dns", "message": "It takes too much.", "spared": True}],
    "signals": [
        {
            "signal": "memory.available",
            "available": "50Mi",
            "capacity": "2Gi",
            "left": "50Mi of 2Gi (2%)",
            "thresholds": [
                threshold(met=True, acts_at=NOW, reclaim_until="153600Ki", until="150Mi"),
                threshold(
                    **dict.fromkeys(("quantity", "less_than", "reclaim_until", "until"), "1Gi"),
                    met=True,
                    grace_period=90.0,
                    acts_at=NOW + 30,
                ),
            ],
            "reclaims": [],
            "ranking": [candidate(0, spared=True), *map(candidate, range(1, 8))],
        },
        {
            "signal": "nodefs.available",
            "available": None,
            "capacity": None,
            "left": "",
            "thresholds": [threshold(quantity=None, less_than="", reclaim_until=None, until="")],
            "reclaims": ["dead containers", "unused images"],
            "ranking": [],
        },
    ],
}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Provide the root directory of a server that responds like a kubelet."""
    mux = http.ServeMux()

    def answer(w: http.ResponseWriter, r: http.Request) -> None:
        if r.param("pod") == "ns/none":
            raise http.HTTPError(404, "this kubelet knows no pod ns/none")
        w.write(json.dumps(ANSWER).encode())

    mux.handle("/debug/syncloop/explain", answer)
    mux.handle("/debug/syncloop/evictions", lambda w, r: w.write(json.dumps(EVICTIONS).encode()))
    served = http.Server(mux, name="test")
    served.listen_unix(str(tmp_path / kubeletconfig.DEBUG_SOCKET_NAME))
    thread = golang.go(served.serve, name="test")
    yield tmp_path
    served.close()
    thread.join()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., tuple[int, str, str]]]:
    def execute(*arguments: str) -> tuple[int, str, str]:
        code = server.new_kubelet_command().execute(["explain", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    yield execute
    klog.set_verbosity(0)


def test_pod(run: Callable[..., tuple[int, str, str]], root: Path) -> None:
    code, out, err = run("pod", "ns/shop", f"--root-dir={root}")

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "ns/shop: stuck"
    assert lines[1].startswith("  Its container app ended with exit code 1. Next start in 12 s (")
    assert lines[2] == "  What to do: look at its log"
    for text in (
        "    last exit      app: exit code 1  (5 s ago)",
        "    event BackOff  Back-off  (3 times, last 1 min 30 s ago)",
        "    condition      no time",
        "    app  init, waiting (CrashLoopBackOff), 1 restart",
        "  Worker: waits to try again, next step in 12 s; phase sync, 4 steps, the last 2 failed",
        "    and 1 later; -o json shows all",
    ):
        assert text in lines
    bars = {text.split()[0]: text for text in lines if "|" in text}
    # Eight seconds span 48 columns. The bar of the sandbox fills the first thirty.
    assert f"|{'█' * 30}{' ' * 18}| 5 s" in bars["sandbox"]
    assert f"|{' ' * 30}{'█' * 18}| 5 s so far  app" in bars["create"]
    assert bars["seen"].count("◆") == 1 and "exit" not in bars


def test_what_a_container_has_written_controls_no_terminal(
    run: Callable[..., tuple[int, str, str]], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "\x1b]52;c;Zm9v\x07\x9b2J"
    monkeypatch.setitem(EXPLANATION, "sentence", f"It ended: {said}")
    monkeypatch.setitem(EXPLANATION, "evidence", [{"source": "last exit", "text": said, "at": None, "count": 0}])

    for arguments in (("pod", "ns/shop"), ("node",)):
        _, out, _ = run(*arguments, f"--root-dir={root}")
        assert "It ended: \ufffd]52;c;Zm9v\ufffd\ufffd2J" in out
        assert out.replace("\n", "").isprintable()
    _, out, _ = run("pod", "ns/shop", "-o", "json", f"--root-dir={root}")
    assert json.loads(out)["pods"][0]["explanation"]["evidence"][0]["text"] == said


def test_node(run: Callable[..., tuple[int, str, str]], root: Path) -> None:
    code, out, _ = run("node", f"--root-dir={root}")

    assert code == 0
    assert out.splitlines()[:6] == [
        "node: v1.36.2, standalone, up 1 h",
        "  The node is unhealthy: no disk.",
        "    runtime: no disk",
        "  PLEG: last relist 1 s ago, takes 4 ms (p99 20 ms)",
        "  Call under way: pull_image for ns/shop for 3 s",
        "",
    ]
    assert "    ns/shop  stuck      Its container app ended with exit code 1. Next start in 12 s" in out


def test_evictions(run: Callable[..., tuple[int, str, str]], root: Path) -> None:
    code, out, _ = run("evictions", f"--root-dir={root}")

    assert code == 0
    assert out.splitlines() == [
        "The node is short of memory (memory.available): ns/pod-1 would be evicted now.",
        "  MemoryPressure: stays for at least 1 min",
        "  PIDPressure: ends with the next measurement that finds no pressure",
        "  ns/dns: It takes too much. The pod is critical and is not evicted.",
        "",
        "  memory.available: 50Mi of 2Gi (2%) left",
        "    less than 100Mi at any time, until 150Mi are left: yes",
        "    less than 1Gi for 1 min 30 s: yes, in 30 s",
        "    1. ns/pod-0  priority 0; critical, not evicted",
        "    2. ns/pod-1  priority 1",
        "    3. ns/pod-2  priority 2",
        "    4. ns/pod-3  priority 3",
        "    5. ns/pod-4  priority 4",
        "    and 3 more; -o json shows all",
        "",
        "  nodefs.available: cannot be measured",
        "    less than an unknown share at any time: no",
        "    removed before pods: dead containers, unused images",
    ]


def test_evictions_as_json(run: Callable[..., tuple[int, str, str]], root: Path) -> None:
    code, out, _ = run("evictions", "-o", "json", f"--root-dir={root}")
    assert (code, json.loads(out)) == (0, EVICTIONS)


def test_json(run: Callable[..., tuple[int, str, str]], root: Path) -> None:
    code, out, _ = run("pod", "ns/shop", "-o", "json", f"--root-dir={root}")
    assert (code, json.loads(out)) == (0, ANSWER)


@pytest.mark.parametrize(
    "arguments",
    [(), ("pod",), ("pods", "ns/shop"), ("node", "a"), ("evictions", "a"), ("pod", "ns/shop", "ns/other")],
    ids=" ".join,
)
def test_what_cannot_be_explained(run: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert "explain needs an argument: `explain pod NAMESPACE/NAME`, `explain node`, or `explain evictions`" in err


def test_pod_that_is_not_there(run: Callable[..., tuple[int, str, str]], root: Path) -> None:
    code, out, err = run("pod", "ns/none", f"--root-dir={root}")
    assert (code, out, err) == (1, "", "Error: this kubelet knows no pod ns/none\n")


def test_no_kubelet(run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, _, err = run("node", f"--root-dir={tmp_path}")
    assert code == 1
    assert f"no kubelet runs with the root directory {tmp_path}: no process listens on {tmp_path}/debug.sock" in err
