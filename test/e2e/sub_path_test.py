"""Test mounts of a part of a volume: its content, and that links do not lead out of the volume.

- parts: test_part_of_a_volume
- by an expression: test_path_of_variables, test_path_of_a_variable_that_is_not_there
- links: test_link_within_the_volume, test_link_out_of_the_volume, test_link_made_between_two_starts
- the end: test_all_goes_with_the_pod

A fixture creates all pods, and each test then checks its own pod, so that their waits overlap.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from framework.cluster_client import TIMEOUT, Namespace, container, waiting_reason
from framework.local_cluster import LocalCluster
from framework.pod_ways import Pods
from framework.pods import Manifest, pod, shell, sleeper
from framework.volumes import looker, mounted, once, put_config_map, told
from framework.waiting import wait_for

REFUSAL = 'failed to prepare subPath for volumeMount "v" of container "main"'
V = mounted("v", "/v")
PREPARE = "mkdir -p /v/folder/below; echo inner > /v/folder/below/file; echo outer > /v/file; chmod 640 /v/file"
# Each name maps to the path, what the container does with it at /part, and what it reports.
PARTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "folder": ({"subPath": "folder"}, "cat /part/below/file", "inner\n"),
    "folder-below": ({"subPath": "folder/below"}, "ls /part", "file\n"),
    "file": ({"subPath": "file"}, "cat /part; stat -c '%a %F' /part", "outer\n640 regular file\n"),
    "made": ({"subPath": "not/there/yet"}, "stat -c '%a %F' /part; touch /part/x", "777 directory\n"),
    "read-only": (
        {"subPath": "folder", "readOnly": True},
        "touch /part/x || cat /part/below/file",
        "touch: /part/x: Read-only file system\ninner\n",
    ),
}
# Each name maps to a command that makes /v/link, and the path that the pod then mounts.
ESCAPES = {
    "file": ("ln -s /etc/shadow /v/link", "link"),
    "folder": ("ln -s /etc /v/link", "link"),
    "through-folder": ("ln -s / /v/link", "link/etc"),
    "relative": ("ln -s ../../../../../../../../../../etc /v/link", "link"),
    "two-steps": ("ln -s link2 /v/link; ln -s /etc /v/link2", "link"),
    "to-be-made": ("ln -s /tmp /v/link", "link/e2e-sub-path-must-not-be-there"),
}


def with_volume(manifest: Manifest, prepare: str = PREPARE) -> Manifest:
    """Add the volume `v`, an empty directory, and an init container that prepares its content."""
    manifest["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    manifest["spec"]["initContainers"] = [shell(prepare, "init", volumeMounts=[V])]
    return manifest


def part(**path: object) -> dict[str, Any]:
    return mounted("v", "/part", **path)


@pytest.fixture(scope="module", autouse=True)
def made(namespace: Namespace, both_ways: dict[str, Pods]) -> None:
    variables = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['part']"}}},
        {"name": "BELOW", "value": "$(POD)/below"},
    ]
    between = "[ -L /v/data ] && exit 1; rm -rf /v/data; ln -s /etc /v/data; exit 1"
    for pods in both_ways.values():
        for name, (path, shown, _) in PARTS.items():
            pods.create(with_volume(once(f"part-{name}", looker(shown, volumeMounts=[part(**path)]))))
        for name, (prepare, link) in ESCAPES.items():
            pods.create(with_volume(pod(f"escape-{name}", sleeper(volumeMounts=[part(subPath=link)])), prepare))
        links = f"{PREPARE}; ln -s folder /v/link; ln -s below/file /v/folder/link"
        mounts = [part(subPath="link"), mounted("v", "/file", subPath="link/link")]
        pods.create(with_volume(once("link", looker("ls /part; cat /file", volumeMounts=mounts)), links))
        expressed = looker("ls /part; echo $BELOW", volumeMounts=[part(subPathExpr="$(BELOW)")], env=variables)
        found = with_volume(once("expression", expressed))
        found["metadata"]["labels"] = {"part": "folder"}
        pods.create(found)
        missing = sleeper(volumeMounts=[part(subPathExpr="$(NOT_THERE)/x")])
        pods.create(with_volume(pod("expression-missing", missing)))
        swaps = shell(between, volumeMounts=[V, part(subPath="data")])
        pods.create(with_volume(pod("between", swaps, restartPolicy="Always"), "mkdir /v/data"))
        pods.create(with_volume(pod("goes", sleeper(volumeMounts=[part(subPath="folder")]))))
    put_config_map(namespace, "settings", {"one": "1", "two": "2"})
    keys = [mounted("v", "/etc/one", subPath="one"), mounted("v", "/etc/dir/two", subPath="folder/two")]
    items = [{"key": "one", "path": "one", "mode": 0o400}, {"key": "two", "path": "folder/two"}]
    script = looker("cat /etc/one /etc/dir/two; stat -c %a /etc/one; touch /etc/one", volumeMounts=keys)
    source = {"configMap": {"name": "settings", "items": items}}
    namespace.create(once("of-map", script, volumes=[{"name": "v", **source}]))


@pytest.mark.parametrize("name", PARTS)
def test_part_of_a_volume(pods: Pods, name: str) -> None:
    assert told(pods, f"part-{name}") == PARTS[name][2]


def test_file_of_a_config_map(namespace: Namespace) -> None:
    assert told_anyhow(namespace, "of-map") == "12400\ntouch: /etc/one: Read-only file system\n"


def told_anyhow(namespace: Namespace, name: str) -> str:
    """Return what the container reported, whether or not its last command failed."""
    found = namespace.wait_for(name, "ended", lambda found: (main := container(found)) and main.state.terminated)
    main = container(found)
    assert main is not None and main.state.terminated is not None
    return str(main.state.terminated.message)


def test_path_of_variables(pods: Pods) -> None:
    assert told(pods, "expression") == "file\nfolder/below\n"


def test_path_of_a_variable_that_is_not_there(pods: Pods) -> None:
    wait_for_refusal(pods, "expression-missing", "missing value for NOT_THERE")


def wait_for_refusal(pods: Pods, name: str, why: str) -> None:
    found = pods.wait_for(name, "waits", lambda found: waiting_reason(found) == "CreateContainerConfigError")
    main = container(found)
    assert main is not None and main.state.waiting is not None
    # Some kubelets add details about the cause.
    assert main.state.waiting.message.startswith(why)
    event = pods.wait_for_event(name, "Failed", f"Error: {re.escape(why)}.*", "spec.containers{main}")
    assert event.type == "Warning"


def test_link_within_the_volume(pods: Pods) -> None:
    assert told(pods, "link") == "below\nlink\ninner\n"


@pytest.mark.parametrize("name", ESCAPES)
def test_link_out_of_the_volume(pods: Pods, name: str) -> None:
    why = REFUSAL
    if name == "to-be-made":
        why = REFUSAL.replace("prepare subPath", "create subPath directory")
    wait_for_refusal(pods, f"escape-{name}", why)


@pytest.mark.local
def test_nothing_is_made_outside_of_the_volume(pods: Pods) -> None:
    test_link_out_of_the_volume(pods, "to-be-made")
    assert not Path("/tmp", ESCAPES["to-be-made"][1].partition("/")[2]).exists()


def test_link_made_between_two_starts(pods: Pods) -> None:
    wait_for_refusal(pods, "between", REFUSAL)
    found = pods.latest("between")
    main = container(found) if found is not None else None
    assert main is not None and main.restart_count == 0
    assert main.last_state.terminated is not None and main.last_state.terminated.exit_code == 1


@pytest.mark.local
def test_all_goes_with_the_pod(pods: Pods, local: LocalCluster) -> None:
    pods.wait_for_running("goes")
    uid = pods.uid("goes")
    directory = local.kubelet.root_dir / "pods" / uid / "volume-subpaths"
    assert [path.name for path in directory.glob("v/main/*")] == ["0"]
    assert str(directory) in Path("/proc/self/mountinfo").read_text()

    pods.delete("goes")
    pods.wait_deleted("goes")

    wait_for("the pod's directory is gone", lambda: uid not in local.kubelet.pod_directories(), TIMEOUT)
    assert uid not in Path("/proc/self/mountinfo").read_text()
