"""Test what the other tests rely on: the private containerd, its images and its network, without a kubelet."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.containerd import BUSYBOX, PAUSE, WEB, Containerd
from framework.cri import CRIClient
from framework.ports import free_port
from framework.waiting import wait_for
from framework.web import fetch

from pkg import mount_utils


@pytest.fixture
def host_port() -> int:
    return free_port()


@pytest.fixture
def sandbox(cri: CRIClient, tmp_path: Path, host_port: int) -> Iterator[tuple[str, runtimeapi.PodSandboxConfig]]:
    """Yield a running sandbox whose port 8080 is mapped to the host's `host_port`."""
    config = runtimeapi.PodSandboxConfig(
        metadata=runtimeapi.PodSandboxMetadata(name="raw", namespace="default", uid=tmp_path.name),
        hostname="raw",
        log_directory=str(tmp_path),
        port_mappings=[runtimeapi.PortMapping(container_port=8080, host_port=host_port)],
        linux=runtimeapi.LinuxPodSandboxConfig(),
    )
    sandbox_id = cri.runtime.RunPodSandbox(runtimeapi.RunPodSandboxRequest(config=config)).pod_sandbox_id
    yield sandbox_id, config
    cri.remove_sandbox(sandbox_id)


def start_container(
    cri: CRIClient, sandbox: tuple[str, runtimeapi.PodSandboxConfig], name: str, image: str, *command: str
) -> str:
    sandbox_id, sandbox_config = sandbox
    config = runtimeapi.ContainerConfig(
        metadata=runtimeapi.ContainerMetadata(name=name),
        image=runtimeapi.ImageSpec(image=image),
        command=command,
        log_path=f"{name}.log",
        linux=runtimeapi.LinuxContainerConfig(),
    )
    request = runtimeapi.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config)
    container_id: str = cri.runtime.CreateContainer(request).container_id
    cri.runtime.StartContainer(runtimeapi.StartContainerRequest(container_id=container_id))
    return container_id


def test_images_are_there(cri: CRIClient) -> None:
    listed = cri.images.ListImages(runtimeapi.ListImagesRequest()).images
    assert {PAUSE, BUSYBOX, WEB} <= {tag for image in listed for tag in image.repo_tags}


def test_busybox_runs_and_answers_exec(
    cri: CRIClient, sandbox: tuple[str, runtimeapi.PodSandboxConfig], tmp_path: Path
) -> None:
    container_id = start_container(cri, sandbox, "shell", BUSYBOX, "sh", "-c", "echo hello; exec sleep 1000")

    answer = cri.exec(container_id, "sh", "-c", "hostname; exit 3")

    assert (answer.stdout, answer.exit_code) == (b"raw\n", 3)
    log = tmp_path / "shell.log"
    wait_for("the first line of output", lambda: log.exists() and "stdout F hello" in log.read_text(), timeout=60)


def test_web_server_answers_on_host_port_and_pod_address(
    cri: CRIClient, sandbox: tuple[str, runtimeapi.PodSandboxConfig], host_port: int
) -> None:
    start_container(cri, sandbox, "web", WEB)
    status = cri.runtime.PodSandboxStatus(runtimeapi.PodSandboxStatusRequest(pod_sandbox_id=sandbox[0])).status

    assert fetch(f"http://{status.network.ip}:8080/") == "raw\n"
    assert fetch(f"http://127.0.0.1:{host_port}/healthz") == "ok\n"


def test_pause_ends_at_once(cri: CRIClient, sandbox: tuple[str, runtimeapi.PodSandboxConfig]) -> None:
    cri.runtime.StopPodSandbox(runtimeapi.StopPodSandboxRequest(pod_sandbox_id=sandbox[0]), timeout=30)

    status = cri.runtime.PodSandboxStatus(runtimeapi.PodSandboxStatusRequest(pod_sandbox_id=sandbox[0])).status
    assert status.state == runtimeapi.SANDBOX_NOTREADY


@pytest.mark.alone
def test_clean_leaves_no_trace(tmp_path: Path, host_port: int) -> None:
    """The clean-up leaves nothing behind.

    This holds even if a pod with a host port still runs, an image is mounted, and containerd is gone. A network plugin
    that was killed leaves an empty chain of its pod behind.
    """
    before = machine_state()
    runtime = Containerd(tmp_path)
    runtime.start()
    subprocess.run(["iptables", "--wait", "-t", "nat", "-N", "CNI-0123456789abcdef01234567"], check=True)
    runtime.import_images()
    client = runtime.client()
    config = runtimeapi.PodSandboxConfig(
        metadata=runtimeapi.PodSandboxMetadata(name="left", namespace="default", uid="left"),
        log_directory=str(tmp_path / "logs"),
        port_mappings=[runtimeapi.PortMapping(container_port=8080, host_port=host_port)],
        linux=runtimeapi.LinuxPodSandboxConfig(),
    )
    sandbox_id = client.runtime.RunPodSandbox(runtimeapi.RunPodSandboxRequest(config=config)).pod_sandbox_id
    start_container(client, (sandbox_id, config), "web", WEB)
    client.close()
    runtime.stop()
    during = machine_state()

    runtime.clean()

    assert machine_state() == before
    assert not tmp_path.exists()
    assert all(during[what] != before[what] for what in ("links", "rules", "mounts", "processes"))


def machine_state() -> dict[str, list[str]]:
    """Return everything on the machine that a containerd with pods could leave behind."""

    def lines(*command: str) -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    def listing(folder: str) -> list[str]:
        return sorted(str(path) for path in Path(folder).glob("*"))

    return {
        "links": sorted(line.split(": ", 2)[1] for line in lines("ip", "-o", "link")),
        "namespaces": lines("ip", "netns"),
        "rules": [line for line in lines("iptables-save", "-t", "nat") if line.startswith(("-A", ":CNI-"))],
        "mounts": sorted(mount_utils.mount_points(mount_utils.MOUNT_INFO)),
        "processes": [line for line in lines("ps", "-eo", "args") if re.search(r"containerd .*/|^/pause|/web$", line)],
        "forwarding": [Path("/proc/sys/net/ipv4/ip_forward").read_text()],
        "shim sockets": listing("/run/containerd/s"),
        "network results": listing("/var/lib/cni/results"),
    }
