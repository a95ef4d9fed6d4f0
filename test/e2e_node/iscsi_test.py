"""Test disks of an iSCSI target: the kubelet finds, formats and mounts them, and logs out when their pods are gone.

There is no real target. The test's iscsiadm makes a loop device appear where the kernel shows iSCSI disks. The kubelet
runs in its own mount namespace, with a /sys/class from the test. Everything else is real.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from framework.cri import CRIClient
from framework.disks import can_make_ext4, loop_device
from framework.kubelet_process import KubeletProcess
from framework.pods import Manifest, lines_of, pod, sleeper
from framework.waiting import wait_for

pytestmark = pytest.mark.skipif(not can_make_ext4(), reason="the machine cannot make file systems")

IQN = "iqn.2001-04.com.example:e2e"
BY_PATH = Path("/dev/disk/by-path")
DISK = BY_PATH / f"ip-127.0.0.1:3260-iscsi-{IQN}-lun-0"
SOON = 180.0
ISCSIADM = """#!/bin/sh
echo "$*" >> {log}
session={classes}/iscsi_host/host7/device/session1
case "$*" in
*"-o show"*) echo "iface.transport_name = tcp" ;;
*--login*)
  mkdir -p $session/iscsi_session/session1 $session/connection1/iscsi_connection/connection1
  echo {iqn} > $session/iscsi_session/session1/targetname
  cd $session/connection1/iscsi_connection/connection1
  for each in address persistent_address; do echo 127.0.0.1 > $each; done
  for each in port persistent_port; do echo 3260 > $each; done
  ln -s {device} {disk} ;;
*--logout*) rm -r $session {disk} ;;
esac
"""
# This program runs in place of the kubelet. Mounts below the kubelet's directory still belong to the machine.
PROGRAM = """
import os, sys
script = 'mount --make-rprivate /sys && mount --bind {classes} /sys/class && exec "$@"'
kubelet = [sys.executable, "-m", "cmd.kubelet", *sys.argv[1:]]
os.execvp("unshare", ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script, "sh", *kubelet])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iscsi")


@pytest.fixture(scope="module")
def device(folder: Path) -> Iterator[str]:
    (folder / "disk").write_bytes(bytes(8 << 20))
    made = [each for each in (BY_PATH, BY_PATH.parent) if not each.exists()]
    BY_PATH.mkdir(parents=True, exist_ok=True)
    with loop_device(folder / "disk") as device:
        yield device
    DISK.unlink(missing_ok=True)
    for each in made:
        each.rmdir()


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess], folder: Path, device: str) -> Iterator[KubeletProcess]:
    classes = folder / "class"
    _copy_classes(classes)
    script = ISCSIADM.format(log=folder / "log", classes=classes, iqn=IQN, device=device, disk=DISK)
    (folder / "iscsiadm").write_text(script)
    (folder / "iscsiadm").chmod(0o755)
    (folder / "kubelet_with_disks.py").write_text(PROGRAM.format(classes=classes))
    process = new_kubelet("iscsi")
    process.program = "kubelet_with_disks"
    process.environment = {"PATH": f"{folder}:{os.environ['PATH']}:/usr/sbin:/sbin", "PYTHONPATH": str(folder)}
    process.root_dir.mkdir()
    with ExitStack() as stack:
        subprocess.run(["mount", "--bind", process.root_dir, process.root_dir], check=True)
        stack.callback(lambda: subprocess.run(["umount", "--recursive", "--lazy", process.root_dir], check=True))
        subprocess.run(["mount", "--make-rshared", process.root_dir], check=True)
        process.start()
        stack.callback(process.kill)
        yield process


def _copy_classes(classes: Path) -> None:
    """Copy the kernel's classes, and add a host adapter that accepts a request to scan for disks."""
    for each in Path("/sys/class").iterdir():
        (classes / each.name).mkdir(parents=True)
        for link in each.iterdir() if each.is_dir() else ():
            if link.is_symlink():
                (classes / each.name / link.name).symlink_to(link.readlink())
    for name in ("iscsi_host/host7/device", "scsi_host/host7"):
        (classes / name).mkdir(parents=True)


def using(name: str, portal: str = "127.0.0.1:3260") -> Manifest:
    source = {"targetPortal": portal, "iqn": IQN, "lun": 0, "fsType": "ext4"}
    main = sleeper(volumeMounts=[{"name": "v", "mountPath": "/v"}])
    return pod(name, main, volumes=[{"name": "v", "iscsi": source}], securityContext={"fsGroup": 2000})


def seen(kubelet: KubeletProcess, cri: CRIClient, name: str, command: str) -> str:
    [found] = kubelet.wait_for_running(name)
    [container] = cri.running_containers(found.name)
    answer = cri.exec(container.id, "sh", "-c", command)
    return str((answer.stdout + answer.stderr).decode())


def wait_until_gone(kubelet: KubeletProcess, name: str) -> None:
    kubelet.wait_for("the pod is gone", lambda pods: name not in pods)
    wait_for("the kubelet has logged out of the target", lambda: not DISK.exists(), SOON, kubelet.end_of_log)
    wait_for("no pod directory is left", lambda: not kubelet.pod_directories(), SOON, kubelet.end_of_log)
    assert f"{IQN}-lun-0" not in Path("/proc/self/mountinfo").read_text()


def test_disk_is_mounted_and_logged_out_of(kubelet: KubeletProcess, cri: CRIClient, folder: Path) -> None:
    kubelet.write(using("first"))
    looks = "grep -o ' /v ext4 ' /proc/mounts; touch /v/kept; stat -c %g /v/kept"
    assert seen(kubelet, cri, "first", looks) == " /v ext4 \n2000\n"
    kubelet.remove("first")
    wait_until_gone(kubelet, "first")
    # The kubelet deletes the record of the target after the log-out.
    forget = f"-m node -p 127.0.0.1:3260 -T {IQN} -o delete -I default"
    wait_for(
        "the record of the target is deleted", lambda: lines_of(folder / "log")[-1] == forget, SOON, kubelet.end_of_log
    )
    assert f"-m node -p 127.0.0.1:3260 -T {IQN} -I default --login" in lines_of(folder / "log")


def test_kubelet_that_comes_back_logs_out_of_what_it_finds(kubelet: KubeletProcess, cri: CRIClient) -> None:
    """A restarted kubelet logs out of the target of a pod that was removed meanwhile, and the disk keeps its data."""
    kubelet.write(using("second"))
    assert seen(kubelet, cri, "second", "ls /v") == "kept\nlost+found\n"
    kubelet.kill()
    kubelet.remove("second")
    kubelet.start()
    wait_until_gone(kubelet, "second")


def test_disk_of_a_portal_without_a_port_stays_when_the_kubelet_comes_back(
    kubelet: KubeletProcess, cri: CRIClient, folder: Path
) -> None:
    """The disk of a portal without a port stays mounted over a restart, although the disk's path includes the port."""
    kubelet.write(using("third", "127.0.0.1"))
    assert seen(kubelet, cri, "third", "ls /v") == "kept\nlost+found\n"
    kubelet.kill()
    before = len(lines_of(folder / "log"))
    kubelet.start()
    kubelet.wait_for_log("Pod needs the reconstructed volume under another name")
    assert seen(kubelet, cri, "third", "touch /v/more; ls /v") == "kept\nlost+found\nmore\n"
    kubelet.remove("third")
    wait_until_gone(kubelet, "third")
    changes = [line.split()[-3] for line in lines_of(folder / "log")[before:] if "-T" in line and "update" not in line]
    assert changes == ["--logout", "delete"], "the kubelet logged out before its pod was gone"
