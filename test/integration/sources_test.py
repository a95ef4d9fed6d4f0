"""Test the sources of pods: a bad manifest affects no other pod, and two sources do not affect each other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework.hollow_kubelet import HollowKubelet
from framework.pods import Manifest, pod, sleeper
from framework.web import ManifestServer


@pytest.fixture(scope="module")
def server() -> Iterator[ManifestServer]:
    with ManifestServer() as running:
        running.body = pod_list()
        yield running


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., HollowKubelet], server: ManifestServer) -> HollowKubelet:
    """Return a kubelet with one pod from a file. Each test leaves it in this state."""
    config = {"staticPodURL": server.url, "httpCheckFrequency": "200ms", "fileCheckFrequency": "500ms"}
    kubelet = new_kubelet("sources", config)
    kubelet.start()
    kubelet.write(pod("good", sleeper()))
    kubelet.wait_for_running("good")
    return kubelet


def pod_list(*manifests: Manifest) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "PodList", "items": manifests}).encode()


def yaml_of(manifest: Manifest) -> str:
    """Return the manifest as JSON, which is also YAML."""
    return json.dumps(manifest, indent=1)


def others_go_on(kubelet: HollowKubelet, new: str) -> None:
    """Check that the good pod runs as before, and that a new pod of this name still starts and terminates."""
    (good,) = kubelet.wait_for_running("good")
    assert good.restarts() == 0
    kubelet.write(pod(new, sleeper()))
    kubelet.wait_for_running(new)
    kubelet.remove(new)
    kubelet.wait_for("only the good pod is left", lambda pods: set(pods) == {"good"})
    assert kubelet.container_ids("good") == [good.container_id()]


def _write(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def _too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 * 1024 * 1024 + 1)


_NO_CONTAINER = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": {"containers": []}}
_CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "b"}}
_WRONG_TYPE = pod("bad", sleeper(ports=[{"containerPort": "http"}]))
_TWO_FAULTS = pod("Bad_Name", {"name": "main", "image": ""})


@pytest.mark.parametrize(
    ("make", "faults"),
    [
        pytest.param(_write("a: [unclosed"), ["couldn't parse as pod", "yaml: line"], id="no-yaml"),
        pytest.param(_write("just words"), ["couldn't parse as pod", "expected a map"], id="no-object"),
        pytest.param(_write(""), ["couldn't parse as pod"], id="empty"),
        pytest.param(
            _write(yaml_of({"apiVersion": "apps/v1", "kind": "Deployment"})),
            ["got Deployment of apps/v1"],
            id="no-pod",
        ),
        pytest.param(
            _write(yaml_of(_CONFIG_MAP) + "\n---\n" + yaml_of({"apiVersion": "apps/v1", "kind": "Deployment"})),
            ["document 2: ", "got Deployment of apps/v1"],
            id="one-bad-document",
        ),
        pytest.param(_write(yaml_of(_WRONG_TYPE)), ["spec.containers[0].ports[0].containerPort"], id="wrong-type"),
        pytest.param(_write(yaml_of(_NO_CONTAINER)), ["spec.containers: Required value"], id="no-container"),
        pytest.param(
            _write(yaml_of(_TWO_FAULTS)),
            ["metadata.name: Invalid value", "spec.containers[0].image: Required value"],
            id="two-faults",
        ),
        pytest.param(_too_large, ["larger than the limit of 10485760 bytes"], id="too-large"),
        pytest.param(os.mkfifo, ["is not a directory or file"], id="fifo"),
        pytest.param(lambda path: path.symlink_to("nowhere"), ["No such file or directory"], id="dangling-link"),
        # Not even root can read this file.
        pytest.param(lambda path: path.symlink_to("/proc/self/mem"), ["Input/output error"], id="unreadable"),
    ],
)
def test_bad_manifest_is_told_and_harms_no_other(
    kubelet: HollowKubelet, request: pytest.FixtureRequest, make: Callable[[Path], object], faults: list[str]
) -> None:
    name = request.node.callspec.id
    path = kubelet.manifests / f"{name}.yaml"
    # The rename makes the file appear complete. An incomplete file would have another error and another event.
    unfinished = path.with_name(f".{path.name}")
    make(unfinished)
    unfinished.rename(path)

    in_event = ["Event occurred", 'kind="Node"', 'reason="FailedValidation"', str(path)]
    (line,) = kubelet.wait_for_log(*in_event)
    assert [fault for fault in faults if fault not in line] == []
    # The kubelet may log the error after the event.
    kubelet.wait_for_condition(
        "the manifest's error", lambda: [line for line in kubelet.logged(str(path), *faults) if line.startswith("E")]
    )

    others_go_on(kubelet, f"beside-{name}")
    assert len(kubelet.logged(*in_event)) == 1
    path.unlink()


def test_second_pod_of_one_name_is_refused(kubelet: HollowKubelet) -> None:
    (good,) = kubelet.wait_for_running("good")
    kubelet.write_text("second.json", yaml_of(pod("good", sleeper("other"))))

    first, second = kubelet.manifests / "good.json", kubelet.manifests / "second.json"
    fault = f'{second}: metadata.name: the pod \\"{good.name}\\" is also in {first}'
    kubelet.wait_for_log("Event occurred", 'reason="FailedValidation"', fault)
    kubelet.wait_for_event("good", "FailedValidation", "due to duplicate pod name")
    others_go_on(kubelet, "beside-second")
    assert kubelet.pods()["good"].uid == good.uid
    second.unlink()


def test_file_replaced_by_rename_is_never_gone(kubelet: HollowKubelet) -> None:
    """A file that is replaced by a rename never counts as missing.

    The first replacement contains the same pod; only the second, with a different pod, replaces the running pod.
    """
    kubelet.write_text("renamed.yaml", yaml_of(pod("renamed", sleeper())))
    (first,) = kubelet.wait_for_running("renamed")
    removals = len(kubelet.logged("SyncLoop REMOVE", "renamed-sources"))

    kubelet.write_text("renamed.yaml", "# with a comment now\n" + yaml_of(pod("renamed", sleeper())))
    others_still = kubelet.pods()
    assert others_still["renamed"].uid == first.uid
    kubelet.write_text("renamed.yaml", yaml_of(pod("renamed", sleeper("other"))))

    second = kubelet.wait_for_pod("renamed", lambda found: found.running and found.uid != first.uid)
    assert kubelet.container_ids("renamed") == [second.container_id("other")]
    assert len(kubelet.logged("SyncLoop REMOVE", "renamed-sources")) == removals + 1
    (kubelet.manifests / "renamed.yaml").unlink()
    kubelet.wait_for("the pod is gone", lambda pods: set(pods) == {"good"})


def test_half_written_file_is_told_and_then_runs(kubelet: HollowKubelet) -> None:
    text = yaml_of(pod("half", sleeper()))
    path = kubelet.manifests / "half.json"
    with path.open("w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        kubelet.wait_for_log("Event occurred", 'reason="FailedValidation"', str(path), "couldn't parse as pod")
        others_go_on(kubelet, "beside-half")
        file.write(text[len(text) // 2 :])

    kubelet.wait_for_running("half")
    kubelet.remove("half")
    kubelet.wait_for("the pod is gone", lambda pods: set(pods) == {"good"})


def test_file_and_url_at_once_and_one_going_away(kubelet: HollowKubelet, server: ManifestServer) -> None:
    """A failing source keeps its pods. A source that returns an empty list loses its own pods only."""
    (good,) = kubelet.wait_for_running("good")
    server.body = pod_list(pod("from-url", sleeper()), pod("also-from-url", sleeper()))
    from_url, _ = kubelet.wait_for_running("from-url", "also-from-url")
    assert [found.json["metadata"]["annotations"]["kubernetes.io/config.source"] for found in (good, from_url)] == [
        "file",
        "http",
    ]

    server.status = 500
    server.wait_for_requests(3)
    kubelet.wait_for_log("Failed to read pods from URL", server.url, "500")
    assert set(kubelet.pods()) == {"good", "from-url", "also-from-url"}

    server.status, server.body = 200, b"no pods"
    kubelet.wait_for_log("Failed to read pods from URL", server.url, "couldn't parse")
    assert set(kubelet.pods()) == {"good", "from-url", "also-from-url"}

    server.body = pod_list()
    kubelet.wait_for("the pods of the URL are gone", lambda pods: set(pods) == {"good"})
    kubelet.wait_for_condition(
        "the containers of the URL's pods have ended", lambda: not kubelet.container_ids("from-url")
    )
    others_go_on(kubelet, "beside-url")
    assert kubelet.pods()["good"].container_id() == good.container_id()
