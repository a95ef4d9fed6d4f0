"""A kubelet within the test's process, to see what its memory still holds when its pods are gone."""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.pods import pod, shell, sleeper
from framework.waiting import wait_for
from kubelet_cmd.kubelet.app import options, server
from kubelet_cmd.kubemark.app import hollow_node

from kubelet import container as kubecontainer
from kubelet import kubelet as kubelet_module
from kubelet import pod_workers
from kubelet.cri.remote import fake
from pkg import golang
from pkg.api.core import v1

PODS = 20
# Of each of these a forgotten pod would hold one.
_KINDS = (v1.Pod, v1.PodStatus, v1.Container, kubecontainer.Pod, kubecontainer.PodStatus, pod_workers.PodSyncStatus)


class Embedded:
    """A hollow kubelet on threads of this process."""

    def __init__(self, folder: Path) -> None:
        self.manifests = folder / "manifests"
        self.manifests.mkdir()
        self.root = folder / "root"
        self.runtime = fake.FakeRuntime()
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.server = fake.FakeServer(f"unix://{folder}/cri.sock", self.runtime)
        self.server.start()
        flags = options.KubeletFlags(root_directory=str(self.root), hostname_override="embedded")
        config = options.new_kubelet_configuration()
        settings = options.KubeletServer(flags, config)
        config.static_pod_path = str(self.manifests)
        config.container_runtime_endpoint = self.server.endpoint
        config.pod_logs_dir = str(folder / "pod-logs")
        config.cgroups_per_qos = False
        config.enforce_node_allocatable = []
        config.read_only_port = 0
        dependencies = hollow_node.hollow_dependencies(self.ctx, settings)
        self.kubelet: kubelet_module.Kubelet = server.create_and_init_kubelet(self.ctx, settings, dependencies)
        server.start_kubelet(self.ctx, self.kubelet, settings, dependencies)

    def end(self) -> None:
        self.cancel()
        self.server.stop()
        self.runtime.close()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Embedded]:
    running = Embedded(tmp_path)
    yield running
    running.end()


def _alive() -> dict[str, int]:
    """How many objects there are of the kinds that belong to pods."""
    gc.collect()
    counts = Counter(kind.__name__ for each in gc.get_objects() for kind in _KINDS if type(each) is kind)
    return dict(counts)


def test_pods_that_are_gone_leave_nothing_in_memory(embedded: Embedded) -> None:
    kubelet = embedded.kubelet
    for number in range(PODS):
        unfinished = embedded.manifests / f".{number}.json"
        unfinished.write_text(json.dumps(pod(f"pod-{number}", sleeper(), shell("exit 1", "fails"))))
        unfinished.rename(embedded.manifests / f"{number}.json")
    started = embedded.runtime.recorder.counts
    wait_for("the failing ones restarted", lambda: started.get("StartContainer", 0) >= 3 * PODS, timeout=30)
    assert _alive()["Pod"] >= PODS

    for path in embedded.manifests.iterdir():
        path.unlink()

    wait_for("no pod", lambda: not kubelet.pod_manager.get_pods(), timeout=30)
    wait_for("no worker", lambda: not kubelet.pod_workers.pod_sync_statuses, timeout=30)
    wait_for("no directory", lambda: not list((embedded.root / "pods").iterdir()), timeout=30)
    kubelet.container_gc.garbage_collect(embedded.ctx)
    assert not embedded.runtime.sandboxes
    # The last one is still in the hands of threads that wait for the next.
    wait_for("at most the last pod", lambda: max(_alive().values(), default=0) <= 2, 30, _alive)
