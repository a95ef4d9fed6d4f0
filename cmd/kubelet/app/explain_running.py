"""Run `kubelet explain pod NAMESPACE/NAME`, `kubelet explain node` and `kubelet explain evictions`.

These commands ask the kubelet that runs on this machine. `kubelet config explain` (explain.py) is different: it reads
the configuration and needs no running kubelet.

DIVERGES (preference: kubelet explain): the command shows the state of the node and its pods, and which pods would be
evicted.
Go: cmd/kubelet/app/server.go, NewKubeletCommand: the Go kubelet has no such command.
Why: an administrator on the node can find out why a pod does not run without reading the log.
Test: test/programs/explain_running_test.py:test_pod, test/programs/explain_running_test.py:test_node,
test/programs/explain_running_test.py:test_evictions
"""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

from kubelet import kubeletconfig
from pkg import golang

from . import explain

POD, NODE, EVICTIONS = "pod", "node", "evictions"

_TIMEOUT = 30.0
# The output names at most this many pods of a ranking.
_RANKED = 5
# A timeline is this many characters wide.
_WIDTH = 48
# A pod in one of these states needs no attention.
_FINE = frozenset({"ready", "succeeded", "starting", "stopping", "gone"})


class NoKubeletError(OSError):
    """Signal that no kubelet could be reached."""


def ask(root_directory: str, what: str, pod: str = "") -> dict[str, Any]:
    """Return what the kubelet with this root directory says about a pod, the node or evictions.

    Raise NoKubeletError if no kubelet responds, and ValueError if the kubelet knows no such pod.
    """
    path = os.path.join(root_directory, kubeletconfig.DEBUG_SOCKET_NAME)
    connection = _UnixConnection(path)
    try:
        connection.request("GET", _path(what, pod))
        answer = connection.getresponse()
        body = answer.read()
    except (FileNotFoundError, ConnectionRefusedError) as err:
        raise NoKubeletError(
            f"no kubelet runs with the root directory {root_directory}: no process listens on {path}; "
            "use --root-dir for another root directory"
        ) from err
    except PermissionError as err:
        raise NoKubeletError(f"the kubelet's socket {path} is accessible only to root") from err
    except (OSError, http.client.HTTPException) as err:
        raise NoKubeletError(f"the kubelet on {path} does not respond: {err or type(err).__name__}") from err
    finally:
        connection.close()
    if answer.status != 200:
        raise ValueError(body.decode(errors="replace").strip() or f"the kubelet returned status {answer.status}")
    found: dict[str, Any] = json.loads(body)
    return found


def _path(what: str, pod: str) -> str:
    if what == EVICTIONS:
        return "/debug/syncloop/evictions"
    return "/debug/syncloop/explain" + (f"?pod={quote(pod, safe='')}" if pod else "")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT)
        self.sock.connect(self._path)


def render(found: dict[str, Any], what: str, output: str) -> str:
    """Return the kubelet's response as text for a terminal, or as JSON.

    Containers and registries wrote some of the text, so control characters are made printable.
    """
    if output == explain.JSON:
        return json.dumps(found, indent=2) + "\n"
    lines = {POD: _pods, NODE: _node, EVICTIONS: _evictions}[what](found)
    return "".join(golang.printable(line).rstrip() + "\n" for line in lines)


# ---- A pod ----


def _pods(found: dict[str, Any]) -> Iterator[str]:
    for number, pod in enumerate(found["pods"]):
        if number:
            yield ""
        yield from _pod(pod, found["now"])


def _pod(pod: dict[str, Any], now: float) -> Iterator[str]:
    explanation = pod["explanation"]
    yield f"{pod['namespace']}/{pod['name']}: {explanation['state']}"
    yield f"  {explanation['sentence']}{_until(explanation, now)}"
    if explanation["advice"]:
        yield f"  What to do: {explanation['advice']}"
    if explanation["evidence"]:
        yield ""
        yield "  Evidence"
        width = max(len(row["source"]) for row in explanation["evidence"])
        for row in explanation["evidence"]:
            when = f"  ({_times(row['count'])}{_span(now - row['at'])} ago)" if row["at"] is not None else ""
            yield f"    {row['source']:<{width}}  {' '.join(row['text'].split())}{when}"
    yield from _containers(pod, now)
    if pod["worker"] is not None:
        yield ""
        yield f"  Worker: {_worker(pod['worker'], now)}"
    yield from _timeline(pod["timeline"], now)


def _until(explanation: dict[str, Any], now: float) -> str:
    if explanation["until"] is None:
        return ""
    left = explanation["until"] - now
    what = explanation["until_what"][:1].upper() + explanation["until_what"][1:]
    return f" {what} in {_span(left)} ({_clock(explanation['until'])})." if left > 0 else f" {what} now."


def _times(count: int) -> str:
    return f"{count} times, last " if count > 1 else ""


def _containers(pod: dict[str, Any], now: float) -> Iterator[str]:
    if not pod["containers"]:
        return
    yield ""
    yield "  Containers"
    width = max(len(each["name"]) for each in pod["containers"])
    for each in pod["containers"]:
        kind = "" if each["kind"] == "container" else f"{each['kind']}, "
        reason = f" ({each['reason']})" if each["reason"] else ""
        since = f" for {_span(now - each['since'])}" if each["since"] is not None and each["state"] == "running" else ""
        ready = ", not ready" if each["state"] == "running" and not each["ready"] else ""
        restarts = f", {each['restarts']} restart{'s' * (each['restarts'] != 1)}" if each["restarts"] else ""
        yield f"    {each['name']:<{width}}  {kind}{each['state']}{reason}{since}{ready}{restarts}"


def _worker(worker: dict[str, Any], now: float) -> str:
    text = str(worker["waits_for"])
    if worker["step_began"] is not None:
        text += f" for {_span(now - worker['step_began'])}"
    if worker["until"] is not None and worker["until"] > now:
        text += f", next step in {_span(worker['until'] - now)}"
    text += f"; phase {worker['phase']}, {worker['steps']} step{'s' * (worker['steps'] != 1)}"
    return text + (f", the last {worker['failures']} failed" if worker["failures"] else "")


def _timeline(lines: list[dict[str, Any]], now: float) -> Iterator[str]:
    """Yield the pod's stages drawn to scale, from its first appearance until it was ready, or until now."""
    if not lines:
        return
    first = lines[0]["began"]
    ready = next((line["began"] for line in lines if line["stage"] == "ready"), None)
    ends = [now if line["ended"] is None else line["ended"] for line in lines]
    last = max(first + 0.001, max(ends) if ready is None else ready)
    yield ""
    yield f"  Timeline from {_clock(first)} over {_span(last - first)}"
    shown = [line for line in lines if line["began"] <= last]
    for line in shown:
        end = now if line["ended"] is None else line["ended"]
        took = f"{_span(end - line['began'])}{' so far' if line['ended'] is None else ''}"
        mark = end - line["began"] < 0.0005
        what = f"+{_span(line['began'] - first)}" if mark else took
        detail = " ".join(line["detail"].split())
        detail = f"  {detail[:80]}{'…' * (len(detail) > 80)}" if detail else ""
        yield f"    {line['stage']:<12} |{_bar(line['began'] - first, end - first, last - first)}| {what}{detail}"
    if len(lines) > len(shown):
        yield f"    and {len(lines) - len(shown)} later; -o json shows all"


def _bar(began: float, ended: float, whole: float) -> str:
    left = min(_WIDTH - 1, int(began / whole * _WIDTH))
    length = max(1, round((min(ended, whole) - began) / whole * _WIDTH))
    bar = "◆" if ended - began < 0.0005 else "█" * min(length, _WIDTH - left)
    return f"{' ' * left}{bar}{' ' * (_WIDTH - left - len(bar))}"


# ---- The node ----


def _node(found: dict[str, Any]) -> Iterator[str]:
    node, now = found["node"], found["now"]
    mode = "standalone" if node["standalone"] else "with an API server"
    yield f"{node['name']}: {node['version']}, {mode}, up {_span(now - node['began'])}"
    yield f"  {node['sentence']}"
    for problem in node["problems"]:
        yield f"    {problem['what']}: {problem['text']}"
    yield from _runtime(found)
    pods = sorted(found["pods"], key=lambda pod: (pod["explanation"]["state"] in _FINE, pod["namespace"], pod["name"]))
    if not pods:
        return
    yield ""
    yield "  Pods"
    width = max(len(f"{pod['namespace']}/{pod['name']}") for pod in pods)
    for pod in pods:
        explanation = pod["explanation"]
        name = f"{pod['namespace']}/{pod['name']}"
        yield f"    {name:<{width}}  {explanation['state']:<9}  {explanation['sentence']}{_until(explanation, now)}"


def _runtime(found: dict[str, Any]) -> Iterator[str]:
    pleg, calls, now = found["pleg"], found["calls"], found["now"]
    if pleg["last_at"] is not None:
        takes = f"takes {_span(pleg['p50'])} (p99 {_span(pleg['p99'])})"
        yield f"  PLEG: last relist {_span(now - pleg['last_at'])} ago, {takes}"
    for call in calls["in_flight"]:
        if call["operation"] != "get_container_events":
            whose = f" for {call['pod']}" if call["pod"] else ""
            yield f"  Call under way: {call['operation']}{whose} for {_span(now - call['began'])}"


# ---- Evictions ----


def _evictions(found: dict[str, Any]) -> Iterator[str]:
    now = found["now"]
    yield found["sentence"]
    for condition in found["conditions"]:
        yield f"  {condition['type']}: {_stays(condition['not_before'], now)}"
    for limit in found["broken_limits"]:
        spared = " The pod is critical and is not evicted." if limit["spared"] else ""
        yield f"  {limit['pod']}: {limit['message']}{spared}"
    for signal in found["signals"]:
        yield ""
        yield f"  {signal['signal']}: {_left(signal)}"
        for threshold in signal["thresholds"]:
            yield f"    {_threshold(threshold, now)}"
        if signal["reclaims"]:
            yield f"    removed before pods: {', '.join(signal['reclaims'])}"
        yield from _ranking(signal["ranking"])


def _stays(until: float | None, now: float) -> str:
    if until is None or until <= now:
        return "ends with the next measurement that finds no pressure"
    return f"stays for at least {_span(until - now)}"


def _left(signal: dict[str, Any]) -> str:
    return f"{signal['left']} left" if signal["left"] else "cannot be measured"


def _threshold(threshold: dict[str, Any], now: float) -> str:
    grace = threshold["grace_period"]
    text = f"less than {threshold['less_than'] or 'an unknown share'}"
    text += f" for {_span(grace)}" if grace else " at any time"
    if not threshold["met"]:
        return f"{text}: no"
    if threshold["until"] != threshold["less_than"]:
        text += f", until {threshold['until']} are left"
    left = threshold["acts_at"] - now
    return f"{text}: yes" + (f", in {_span(left)}" if left > 0 else "")


def _ranking(ranking: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the first pods of the ranking. The JSON output contains all of them."""
    shown = ranking[:_RANKED]
    width = max((len(each["pod"]) for each in shown), default=0)
    for place, each in enumerate(shown, 1):
        spared = "; critical, not evicted" if each["spared"] else ""
        yield f"    {place}. {each['pod']:<{width}}  {each['why']}{spared}"
    if len(ranking) > len(shown):
        yield f"    and {len(ranking) - len(shown)} more; -o json shows all"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def _span(seconds: float) -> str:
    from kubelet.liveview.words import spoken

    return spoken(max(0.0, seconds))
