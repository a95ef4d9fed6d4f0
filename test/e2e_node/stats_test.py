"""Test the summary of a node with real pods, whose usage is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from framework.containerd import ROOT
from framework.kubelet_process import KubeletProcess
from framework.pods import pod, shell
from framework.waiting import wait_for

_MIB = 1 << 20
_LOG = 300_000
# The pod writes at least these amounts to its volume, to the container's layer, and to the container's log.
_WRITTEN = (3 * _MIB, 2 * _MIB, _LOG)
# This is the summary that the kubelet of Kubernetes 1.36.2 gave for such pods.
RECORDED = ROOT / "kubelet/apis/stats/v1alpha1/testdata/summary.json"
# This figure depends on the kernel.
NOT_EVERYWHERE = ("/swapAvailableBytes",)
# The recorded kubelet had a cgroup without accounting, and a limit for all pods together.
NOT_HERE = ("/node/systemContainers[kubelet]", "/node/systemContainers[pods]/memory/availableBytes", "/node/network")


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    process = new_kubelet("stats", {"volumeStatsAggPeriod": "1s"})
    writes = (
        "dd if=/dev/zero of=/scratch/f bs=1M count=3; dd if=/dev/zero of=/layer bs=1M count=2; "
        "head -c 400000 /dev/zero | tr '\\0' x; while true; do sleep 0.01; done"
    )
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    limits = {"limits": {"memory": "64Mi", "cpu": "200m"}}
    busy = shell(writes, volumeMounts=mounts, resources=limits)
    second = shell("sleep 100000 & sleep 100000", "second")
    process.write(pod("busy", busy, second, volumes=[{"name": "scratch", "emptyDir": {}}]))
    process.write(pod("host", shell("sleep 100000"), hostNetwork=True))
    sidecar = shell("sleep 100000", "sidecar", restartPolicy="Always")
    process.write(pod("initful", shell("sleep 100000"), initContainers=[shell("true", "i"), sidecar]))
    process.write(pod("done", shell("true"), restartPolicy="Never"))
    process.start()
    process.wait_for_running("busy", "host", "initful")
    process.wait_for_pod("done", lambda found: found.phase == "Succeeded")
    return process


@pytest.fixture(scope="module")
def summary(kubelet: KubeletProcess) -> dict[str, Any]:
    """Return the summary once all data has been written and measured."""

    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(kubelet.get("/stats/summary"))
        # A figure that has not been measured yet is missing.
        busy = pods(found).get("busy", {})
        main: dict[str, Any] = next((each for each in busy.get("containers", []) if each["name"] == "main"), {})
        written = (*busy.get("volume", []), main.get("rootfs", {}), main.get("logs", {}))
        enough = [each.get("usedBytes", 0) >= least for each, least in zip(written, _WRITTEN, strict=False)]
        rates = [each.get("cpu", {}).get("usageNanoCores") for each in (found["node"], main)]
        return found if len(enough) == len(_WRITTEN) and all(enough) and all(rates) else None

    found = wait_for("all figures in the summary", look, timeout=180)
    assert found is not None
    return found


def pods(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {found["podRef"]["name"].removesuffix("-stats"): found for found in summary["pods"]}


def container(pod: dict[str, Any], name: str = "main") -> dict[str, Any]:
    (found,) = (each for each in pod["containers"] if each["name"] == name)
    return found  # type: ignore[no-any-return]


def paths(value: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all figures, with names in place of positions. Omit network interfaces other than eth0."""
    match value:
        case dict():
            for key, below in value.items():
                yield from paths(below, f"{path}/{key}")
        case list():
            for item in value:
                name = item.get("name") or item["podRef"]["name"]
                if not path.endswith("/interfaces") or name == "eth0":
                    yield from paths(item, f"{path}[{name}]")
        case _:
            yield path


def test_summary_has_the_figures_that_upstreams_has(summary: dict[str, Any]) -> None:
    both = json.loads(RECORDED.read_bytes()), summary
    expected, found = ({path for path in paths(each) if not path.endswith(NOT_EVERYWHERE)} for each in both)
    different = {path for path in found ^ expected if not path.startswith(NOT_HERE)}
    assert different == set()


def test_what_a_pod_has_written(summary: dict[str, Any]) -> None:
    busy = pods(summary)["busy"]
    main = container(busy)
    (volume,) = busy["volume"]
    assert 3 * _MIB <= volume["usedBytes"] < 4 * _MIB
    assert 2 * _MIB <= main["rootfs"]["usedBytes"] < 3 * _MIB
    assert _LOG <= main["logs"]["usedBytes"] < _MIB
    total = busy["ephemeral-storage"]["usedBytes"]
    assert total >= volume["usedBytes"] + main["rootfs"]["usedBytes"] + main["logs"]["usedBytes"]
    assert total < 8 * _MIB


def test_what_a_pod_uses(summary: dict[str, Any], kubelet: KubeletProcess) -> None:
    busy = pods(summary)["busy"]
    main = container(busy)
    assert 0 < main["cpu"]["usageNanoCores"] <= 10**9
    assert main["cpu"]["usageCoreNanoSeconds"] <= busy["cpu"]["usageCoreNanoSeconds"]
    memory = main["memory"]
    assert memory["availableBytes"] + memory["workingSetBytes"] == 64 * _MIB
    assert 0 < memory["rssBytes"] <= memory["usageBytes"] < 64 * _MIB
    assert busy["process_stats"]["process_count"] >= 3, "expected two shells and a child of the second"
    assert busy["network"]["name"] == "eth0" and busy["network"]["txBytes"] > 0
    assert pods(summary)["host"]["network"]["interfaces"] != busy["network"]["interfaces"]
    assert "done" not in pods(summary), "the pod has ended"


def test_only_cpu_and_memory(kubelet: KubeletProcess, summary: dict[str, Any]) -> None:
    short = json.loads(kubelet.get("/stats/summary?only_cpu_and_memory=true"))
    assert set(pods(short)) == set(pods(summary))
    assert set(pods(short)["busy"]) == {"podRef", "startTime", "containers", "cpu", "memory", "swap"}
    assert not {"network", "fs", "runtime", "rlimit"} & set(short["node"])


def test_sizes_of_logs_as_metrics(kubelet: KubeletProcess, summary: dict[str, Any]) -> None:
    name = "kubelet_container_log_filesystem_used_bytes"
    lines = [line for line in kubelet.get("/metrics").splitlines() if line.startswith(name)]
    (main,) = (line for line in lines if 'container="main"' in line and 'pod="busy-stats"' in line)
    assert float(main.rpartition(" ")[2]) >= _LOG
