"""Test a container that replaces another container's sub-path by a link to the host, over and over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from framework.kubelet_process import KubeletProcess
from framework.pods import lines_of, pod, shell, with_evidence
from framework.waiting import wait_for

VICTIMS = 12
ENOUGH = 6
# The directory is in place for as long as the link.
SWAP = """
mkdir /v/own; touch /v/own/of-the-volume; ln -s /etc /v/link
while true; do mv -T /v/own /v/data; mv -T /v/data /v/own; mv -T /v/link /v/data; mv -T /v/data /v/link; done
"""
LOOK = "ls -A /part | head -n 3 >> /evidence/$HOSTNAME-seen; echo ran >> /evidence/ran; exit 1"


def test_race_for_a_sub_path(new_kubelet: Callable[..., KubeletProcess], tmp_path: Path) -> None:
    """No container sees the host through a sub-path that is swapped during its start.

    This covers CVE-2017-1002101 and CVE-2021-25741. Each container that starts lists what was mounted.
    """
    kubelet = new_kubelet("attacked")
    kubelet.start()
    mount = {"name": "v", "mountPath": "/part", "subPath": "data"}
    victims = [shell(LOOK, f"victim-{number}", volumeMounts=[mount]) for number in range(VICTIMS)]
    attacker = shell(SWAP, "attacker", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    manifest = pod("race", attacker, *victims, grace=0, volumes=[{"name": "v", "emptyDir": {}}])
    kubelet.write(with_evidence(manifest, tmp_path / "evidence"))

    def refused() -> int:
        return kubelet.log.read_text(errors="replace").count('the sub-path leads out of the volume"')

    wait_for(
        "containers that ran, and others that were refused",
        lambda: len(lines_of(tmp_path / "evidence/ran")) >= ENOUGH and refused() >= ENOUGH,
        timeout=300,
        describe=lambda: (lines_of(tmp_path / "evidence/ran"), refused(), kubelet.end_of_log()),
    )
    seen = {line for path in (tmp_path / "evidence").glob("*-seen") for line in lines_of(path)}
    assert seen <= {"of-the-volume"}
    kubelet.remove("race")
    kubelet.wait_for("the pod is gone", lambda pods: "race" not in pods)
    wait_for("the pod's directory is gone", lambda: not kubelet.pod_directories(), 180, kubelet.end_of_log)
