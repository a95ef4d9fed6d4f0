"""Test pods from a folder and from a URL together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from framework.cri import CRIClient
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, pod, sleeper
from framework.waiting import wait_for
from framework.web import ManifestServer


@pytest.fixture
def server() -> Iterator[ManifestServer]:
    with ManifestServer() as running:
        yield running


def pod_list(*manifests: Manifest) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "PodList", "items": manifests}).encode()


def test_file_and_url_at_once_and_one_going_away(
    new_kubelet: Callable[..., KubeletProcess], cri: CRIClient, server: ManifestServer
) -> None:
    """A failing source keeps its pods. A source that returns an empty list loses its own pods only."""
    server.body = pod_list(pod("from-url", sleeper()), pod("also-from-url", sleeper()))
    kubelet = new_kubelet("sources", {"staticPodURL": server.url, "httpCheckFrequency": "1s"})
    kubelet.write(pod("from-file", sleeper()))
    kubelet.start()
    from_file, from_url, _ = kubelet.wait_for_running("from-file", "from-url", "also-from-url")
    sources = [each.json["metadata"]["annotations"]["kubernetes.io/config.source"] for each in (from_file, from_url)]
    assert sources == ["file", "http"]

    server.status = 500
    server.wait_for_requests(3)
    assert set(kubelet.pods()) == {"from-file", "from-url", "also-from-url"}

    server.status, server.body = 200, pod_list()
    kubelet.wait_for("the pods of the URL are gone", lambda pods: set(pods) == {"from-file"})
    wait_for(
        "the containers of the URL's pods have ended",
        lambda: not cri.running_containers(from_url.name),
        timeout=180,
        describe=kubelet.end_of_log,
    )
    left = kubelet.pods()["from-file"]
    assert (left.container_id(), left.restarts(), left.running) == (from_file.container_id(), 0, True)

    server.body = pod_list(pod("from-url", sleeper()))
    kubelet.remove("from-file")
    kubelet.wait_for("the pod of the file is gone", lambda pods: set(pods) == {"from-url"})
    kubelet.wait_for_running("from-url")
