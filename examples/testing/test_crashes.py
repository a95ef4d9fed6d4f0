from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crashes import Crash, find_crashes
from kubelet_testing import Cluster, HollowNode, WaitFor
from kubernetes import client, config

POD = {
    "metadata": {"name": "web"},
    "spec": {"containers": [{"name": "app", "image": "web:1"}, {"name": "proxy", "image": "proxy:1"}]},
}


@pytest.fixture
def core(kubeconfig: Path) -> client.CoreV1Api:
    config.load_kube_config(str(kubeconfig))
    return client.CoreV1Api()


def restarts(core: client.CoreV1Api, container: str) -> int:
    statuses: list[Any] = core.read_namespaced_pod("web", "default").status.container_statuses or []
    return sum(status.restart_count for status in statuses if status.name == container)


def test_a_container_that_crashes(core: client.CoreV1Api, node: HollowNode, wait_for: WaitFor) -> None:
    core.create_namespaced_pod("default", POD)
    pod = node.pod("web")
    pod.log("starting\nfatal: no database", container="app")
    assert find_crashes(core, "default") == []

    pod.exit(3, container="app")
    wait_for("a restart of app", lambda: restarts(core, "app") == 1)
    [crash] = find_crashes(core, "default")
    assert crash == Crash("web", "app", "Error", 3, "fatal: no database")
    assert str(crash) == "web/app: Error, exit code 3: fatal: no database"


def test_a_container_without_memory(core: client.CoreV1Api, node: HollowNode, wait_for: WaitFor) -> None:
    core.create_namespaced_pod("default", POD)
    node.pod("web").oom(container="proxy")
    wait_for("a restart of proxy", lambda: restarts(core, "proxy") == 1)
    [crash] = find_crashes(core, "default")
    assert (crash.reason, crash.exit_code) == ("OOMKilled", 137)


def test_a_container_that_ends_well_has_not_crashed(
    core: client.CoreV1Api, node: HollowNode, wait_for: WaitFor
) -> None:
    core.create_namespaced_pod("default", POD)
    node.pod("web").exit(0, container="app")
    wait_for("a restart of app", lambda: restarts(core, "app") == 1)
    assert find_crashes(core, "default") == []


def test_errors_of_the_api_server_are_told(cluster: Cluster, core: client.CoreV1Api) -> None:
    with cluster.faults.status(500, verb="list", resource="pods"), pytest.raises(client.ApiException) as caught:
        find_crashes(core, "default")
    assert caught.value.status == 500
