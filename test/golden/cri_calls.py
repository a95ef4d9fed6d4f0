"""Make a kubelet's calls to the hollow runtime comparable with the recorded ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from framework.hollow_kubelet import HollowKubelet
from golden import normalize

# A hollow node has no cgroups, and its page sizes and swap differ from those of the recorded machine.
HOLLOW = (
    "RunPodSandbox.config.linux.cgroup_parent",
    "PullImage.sandbox_config.linux.cgroup_parent",
    "CreateContainer.sandbox_config.linux.cgroup_parent",
    "CreateContainer.config.linux.resources.hugepage_limits",
    "CreateContainer.config.linux.resources.unified",
    "CreateContainer.config.linux.resources.memory_swap_limit_in_bytes",
)


def resolv_conf() -> str:
    """Return the resolv.conf of the recorded machine, as a pod on the host's network got it."""
    [config] = [
        line["request"]["config"]["dns_config"]
        for line in normalize.load("04-host")
        if line["method"] == "RunPodSandbox" and line["request"]["config"]["metadata"]["name"] == "host"
    ]
    lines = [f"nameserver {server}" for server in config.get("servers", [])]
    for option in ("searches", "options"):
        if config.get(option):
            lines.append(" ".join([option.removesuffix("es").removesuffix("s"), *config[option]]))
    return "\n".join(lines) + "\n"


def recorded(node: HollowKubelet) -> Iterator[str]:
    """Yield the calls as lines of a recording."""
    return (json.dumps(call.as_json()) for call in node.runtime.recorder.calls())


def conversation(lines: Iterable[dict[str, Any]], root_dir: Path, pod: str) -> list[normalize.Call]:
    """Return the calls about a pod."""
    lines = list(lines)
    directories = {str(root_dir): "/var/lib/kubelet"}
    for line in lines:
        if line["method"] == "RunPodSandbox":
            directories[str(Path(line["request"]["config"]["log_directory"]).parent)] = "/var/log/pods"
    return _without_garbage_collection(normalize.conversations(lines, directories=directories).get(pod, []))


def _without_garbage_collection(calls: list[normalize.Call]) -> list[normalize.Call]:
    """Leave out the garbage collection of sandboxes, which runs once a minute and did not run during the recording."""
    result: list[normalize.Call] = []
    for call in calls:
        again = call.method == "StopPodSandbox" and call in result
        if call.method != "RemovePodSandbox" and not again:
            result.append(call)
    return result
