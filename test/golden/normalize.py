"""Make recorded conversations between a kubelet and a container runtime comparable.

A conversation consists of the calls about one pod. What differs from run to run (IDs, times, addresses, directories) is
replaced by a placeholder, so that two conversations about the same pod can be compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data" / "golden" / "v1.36.2"

# These are the calls that change something, and the call that decides whether to pull an image.
MUTATING = (
    "RunPodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "CreateContainer",
    "StartContainer",
    "StopContainer",
    "RemoveContainer",
    "PullImage",
    "ImageStatus",
)

# These calls about several containers have no particular order.
_UNORDERED = ("StopContainer", "RemoveContainer")

_QUESTIONS = ("ImageStatus",)

_SEEN = "kubernetes.io/config.seen"
_ID = re.compile(r"\b(?:sha256:)?[0-9a-f]{64}\b")
_TERMINATION_LOG = re.compile(r"(/containers/[^/\"]+)/[0-9a-f]{8}\b")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True, slots=True)
class Call:
    """Describe one call about a pod. `subject` is the object of the call: `<sandbox>`, `<c#0>`, an image."""

    method: str
    subject: str
    request: dict[str, Any]
    failed: bool

    def __str__(self) -> str:
        return f"{self.method} {self.subject}{' (failed)' if self.failed else ''}"


def load(scenario: str) -> list[dict[str, Any]]:
    """Return the recorded lines of a scenario, in the order in which the calls began."""
    return read(DATA / scenario / "cri.jsonl")


def read(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a recording, in the order in which the calls began."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(lines, key=lambda line: float(line["t"]))


def pods(scenario: str) -> list[dict[str, Any]]:
    """Return the pods that the API server held, with their statuses."""
    items: list[dict[str, Any]] = json.loads((DATA / scenario / "pods.json").read_text())["items"]
    return items


def conversations(
    lines: Iterable[dict[str, Any]],
    *,
    methods: Iterable[str] = MUTATING,
    directories: dict[str, str] | None = None,
) -> dict[str, list[Call]]:
    """Return the calls of each pod by its name. `directories` maps path prefixes to their placeholders.

    Calls about pods whose sandbox was created before the recording are left out. So are repeated queries, because a
    recording has them only when the response has changed.
    """
    lines, wanted = list(lines), set(methods)
    names = _Names(lines, directories or {})
    result: dict[str, list[Call]] = {}
    for line in lines:
        pod = names.pod_of(line)
        if pod is None or line["method"] not in wanted:
            continue
        call = Call(line["method"], names.subject_of(line), names.replace(pod, line["request"]), "error" in line)
        calls = result.setdefault(pod, [])
        if call.method not in _QUESTIONS or call not in calls:
            calls.append(call)
    return result


class _Names:
    """Map IDs to names, from all lines of a recording."""

    def __init__(self, lines: Iterable[dict[str, Any]], directories: dict[str, str]) -> None:
        self._directories = sorted(directories.items(), key=lambda item: -len(item[0]))
        self._pods: dict[str, str] = {}  # The key is an ID, a UID or the time when the pod was first seen.
        self._ids: dict[str, str] = {}  # The value is the placeholder of the ID.
        self._uids: dict[str, set[str]] = {}
        for line in lines:
            self._learn(line["method"], line["request"], line.get("response", {}))

    def _learn(self, method: str, request: dict[str, Any], response: dict[str, Any]) -> None:
        if method == "RunPodSandbox":
            metadata = request["config"]["metadata"]
            pod = metadata["name"]
            self._uids.setdefault(pod, set()).add(metadata["uid"])
            self._pods[request["config"].get("annotations", {}).get(_SEEN, "")] = pod
            if "pod_sandbox_id" in response:
                sandbox_id = response["pod_sandbox_id"]
                attempt = metadata.get("attempt", 0)
                self._pods[sandbox_id] = pod
                self._ids[sandbox_id] = "<sandbox>" if not attempt else f"<sandbox#{attempt}>"
        elif method == "CreateContainer" and "container_id" in response:
            metadata = request["config"]["metadata"]
            container_id = response["container_id"]
            self._pods[container_id] = request["sandbox_config"]["metadata"]["name"]
            self._ids[container_id] = f"<{metadata['name']}#{metadata.get('attempt', 0)}>"

    def pod_of(self, line: dict[str, Any]) -> str | None:
        """Return the pod that a call is about, or None if that is unknown."""
        request = line["request"]
        match line["method"]:
            case "RunPodSandbox":
                name: str = request["config"]["metadata"]["name"]
                return name
            case "PullImage" | "ImageStatus":
                return self._pods.get(request["image"].get("annotations", {}).get(_SEEN, "?"))
            case _:
                about = request.get("container_id") or request.get("pod_sandbox_id") or "?"
                return self._pods.get(about)

    def subject_of(self, line: dict[str, Any]) -> str:
        request = line["request"]
        match line["method"]:
            case "RunPodSandbox":
                return "<sandbox>"
            case "CreateContainer":
                metadata = request["config"]["metadata"]
                return f"<{metadata['name']}#{metadata.get('attempt', 0)}>"
            case "PullImage" | "ImageStatus":
                return _without_id(request["image"]["image"])
            case _:
                about = request.get("container_id") or request["pod_sandbox_id"]
                return self._ids.get(about, "<unknown>")

    def replace(self, pod: str, request: dict[str, Any]) -> dict[str, Any]:
        text = json.dumps(request)
        for uid in self._uids.get(pod, ()):
            text = text.replace(uid, "<uid>")
        for prefix, name in self._directories:
            text = text.replace(prefix, name)
        text = _ID.sub(lambda match: self._ids.get(match.group(), "<id>"), text)
        text = _TERMINATION_LOG.sub(r"\1/<random>", text)
        text = _TIME.sub("<time>", text)
        return _sort_environment(json.loads(text))


def _without_id(image: str) -> str:
    return _ID.sub("<id>", image)


def _sort_environment(request: dict[str, Any]) -> dict[str, Any]:
    """Sort the environment variables. In Go they come from a map, so that their order has no meaning."""
    config = request.get("config", {})
    if "envs" in config:
        config["envs"] = sorted(config["envs"], key=lambda env: str(env["key"]))
    for env in config.get("envs", []):
        if env["key"].endswith("POD_IP"):
            env["value"] = "<ip>"
    return request


def steps(calls: Iterable[Call]) -> list[list[str]]:
    """Return the meaningful order of calls: neighbours that may swap form one sorted step."""
    result = []
    for _, group in groupby(enumerate(calls), key=_step_key):
        result.append(sorted(str(call) for _, call in group))
    return result


def _step_key(item: tuple[int, Call]) -> object:
    index, call = item
    return call.method if call.method in _UNORDERED else index


def diff_conversations(recorded: list[Call], ours: list[Call], ignore: Iterable[str] = ()) -> list[str]:
    """Return the differences, one line each: first the order of calls, then their contents.

    `ignore` has paths like `CreateContainer.config.linux.resources`, which include everything below them.
    """
    found = []
    if steps(recorded) != steps(ours):
        found.append(f"order: recorded {_show(steps(recorded))}, ours {_show(steps(ours))}")
    remaining = list(ours)
    for call in recorded:
        twin = next((other for other in remaining if str(other) == str(call)), None)
        if twin is None:
            continue
        remaining.remove(twin)
        found.extend(diff(call.request, twin.request, f"{call.method} {call.subject}", call.method, ignore))
    return found


def _show(result: list[list[str]]) -> str:
    return "; ".join(" | ".join(step) for step in result)


def diff(recorded: Any, ours: Any, where: str = "", path: str = "", ignore: Iterable[str] = ()) -> Iterator[str]:
    """Yield the differences between two requests, one line each, with the path of the field."""
    if recorded == ours or path in set(ignore):
        return
    if isinstance(recorded, dict) and isinstance(ours, dict):
        for key in sorted(recorded.keys() | ours.keys()):
            yield from diff(recorded.get(key), ours.get(key), f"{where} {key}", f"{path}.{key}", ignore)
    elif isinstance(recorded, list) and isinstance(ours, list) and len(recorded) == len(ours):
        for index, (one, other) in enumerate(zip(recorded, ours, strict=True)):
            yield from diff(one, other, f"{where}[{index}]", path, ignore)
    else:
        yield f"{where}: recorded {json.dumps(recorded)}, ours {json.dumps(ours)}"
