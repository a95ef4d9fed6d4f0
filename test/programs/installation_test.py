"""The installed wheel: what of it other projects use, and what it must not have."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from framework.containerd import ROOT

# As somebody writes it who tests a program of theirs; in the end it tells where the modules came from.
_USER = """
import sys
import tempfile

import kubelet_testing as testing
from kubernetes import client, config, watch

POD = {
    "metadata": {"name": "web"},
    "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "nginx"}]},
}


def is_ready(pod):
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions or [])


def wait_for(core, what, **since):
    for event in watch.Watch().stream(core.list_namespaced_pod, "default", timeout_seconds=30, **since):
        if what(event):
            return event["object"]
    raise TimeoutError


with tempfile.TemporaryDirectory() as directory:
    with testing.Cluster(directory) as cluster, testing.HollowNode(cluster, "node-1"):
        config.load_kube_config(str(cluster.admin_kubeconfig))
        core = client.CoreV1Api()
        core.create_namespaced_pod("default", POD)
        pod = wait_for(core, lambda event: is_ready(event["object"]))
        print(pod.spec.node_name, pod.status.phase)
        core.delete_namespaced_pod("web", "default")
        version = pod.metadata.resource_version
        wait_for(core, lambda event: event["type"] == "DELETED", resource_version=version)
        print("gone")

for name, module in sorted(sys.modules.items()):
    if name.split(".")[0] in ("kubelet", "kubelet_cmd", "kubelet_testing", "pkg") and module.__file__:
        print(module.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        *(sys.executable, "setup.py", "--quiet"),
        # The checkout stays as it is.
        *("egg_info", f"--egg-base={folder}"),
        *("build", f"--build-base={folder}/build"),
        *("bdist_wheel", f"--bdist-dir={folder}/bdist", f"--dist-dir={folder}/dist"),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [made] = (folder / "dist").iterdir()
    return made


def test_what_is_in_it(wheel: Path) -> None:
    contents = zipfile.ZipFile(wheel).namelist()
    assert "kubelet/liveview/page.html" in contents
    assert {"LICENSE", "NOTICE"} <= {Path(name).name for name in contents}
    names = [name for name in contents if name.endswith(".py")]
    assert not [name for name in names if name.endswith("_test.py")]
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"kubelet", "kubelet_cmd", "kubelet_testing", "pkg"}
    framework = {name for name in names if name.startswith("kubelet_testing/") and name.count("/") == 1}
    assert framework == {"kubelet_testing/__init__.py", "kubelet_testing/hollow_node.py"}
    assert "kubelet_testing/apiserver/controllers/base.py" in names


def test_a_cluster_for_a_client_in_another_project(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    user = tmp_path / "user.py"
    user.write_text(_USER)
    run = subprocess.run(
        [sys.executable, str(user)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-5000:]
    lines = run.stdout.splitlines()
    assert lines[:2] == ["node-1 Running", "gone"]
    files = lines[2:]
    assert len(files) > 100
    assert not [file for file in files if not file.startswith(f"{site}/")]
