"""Measure the cost of volumes whose content is API objects: the time until they are mounted, and the API calls.

The API server and the fake runtime are separate processes. The kubelet's log shows when it saw a pod and when all
volumes of the pod were mounted.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from api_bench import NAMESPACE, NODE, Watched, hollow_node, new_pod, start_until_ready
from kubelet_bench import cpu_seconds

from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import kubernetes

VOLUMES = 5
_KINDS = ("configmaps", "secrets")
_ADDED, _MOUNTED = '"SyncLoop ADD"', '"All volumes are attached and mounted for pod"'
_TIME = re.compile(r"^[IWE]\d{4} (\d\d:\d\d:\d\d\.\d{6})")
_POD = re.compile(rf"\b{NAMESPACE}/([a-z0-9-]+)")


def mounting(count: int = 100) -> dict[str, float]:
    """Return figures of pods that are created at the same time, each with five projected volumes.

    All pods share five config maps and five secrets. Each pod also has its own config map and a token.
    """
    with hollow_node() as (server, kubelet, client):
        kubelet.more_flags = (*kubelet.more_flags, "--v=3")
        start_until_ready(kubelet, client)
        names = [f"pod-{number:03}" for number in range(count)]
        objects = _make_objects(client, names)
        # The node's own first requests must not count.
        golang.background().wait(3.0)
        server.clear_calls()
        cpu = cpu_seconds(kubelet.pid)
        _start(client, names)
        figures = {"CPU": cpu_seconds(kubelet.pid) - cpu}
        # The server reports a watch only when it has ended.
        kubelet.stop()
        calls = server.calls(NODE)
        log = kubelet.log
        seconds = sorted(_seconds_to_mounted(log, names))
    of_objects = {verb: sum(calls.get(f"{verb} {kind}", 0) for kind in _KINDS) for verb in ("watch", "list", "get")}
    return {
        "to mounted, median": statistics.median(seconds),
        "to mounted, longest": seconds[-1],
        **figures,
        "watches an object": of_objects["watch"] / objects,
        "lists an object": of_objects["list"] / objects,
        "gets an object": of_objects["get"] / objects,
        "tokens a pod": calls.get("create serviceaccounts/token", 0) / count,
    }


def _make_objects(client: kubernetes.Clientset, pods: list[str]) -> int:
    """Create the objects, and return their number."""
    ctx, core = golang.background(), client.core_v1
    common = [f"common-{number}" for number in range(VOLUMES)]
    for name in (*common, *pods):
        config_map = v1.ConfigMap(metadata=metav1.ObjectMeta(name=name), data={f"map-{name}": "value" * 20})
        core.config_maps(NAMESPACE).create(ctx, config_map)
    for name in common:
        secret = v1.Secret(metadata=metav1.ObjectMeta(name=name), data={f"secret-{name}": b"value" * 20})
        core.secrets(NAMESPACE).create(ctx, secret)
    return 2 * len(common) + len(pods)


def _pod(name: str) -> v1.Pod:
    pod = new_pod(name)
    pod.spec.volumes = [
        v1.Volume(name=f"volume-{number}", projected=v1.ProjectedVolumeSource(sources=list(_sources(number, name))))
        for number in range(VOLUMES)
    ]
    [container] = pod.spec.containers
    container.volume_mounts = [
        v1.VolumeMount(name=volume.name, mount_path=f"/{volume.name}") for volume in pod.spec.volumes
    ]
    return pod


def _sources(number: int, pod: str) -> Iterator[v1.VolumeProjection]:
    common = f"common-{number}"
    labels = v1.DownwardAPIVolumeFile(path="name", field_ref=v1.ObjectFieldSelector(field_path="metadata.name"))
    yield v1.VolumeProjection(config_map=v1.ConfigMapProjection(name=common))
    yield v1.VolumeProjection(secret=v1.SecretProjection(name=common))
    yield v1.VolumeProjection(downward_api=v1.DownwardAPIProjection(items=[labels]))
    if number == 0:
        token = v1.ServiceAccountTokenProjection(path="token", audience="bench", expiration_seconds=3600)
        yield v1.VolumeProjection(config_map=v1.ConfigMapProjection(name=pod))
        yield v1.VolumeProjection(service_account_token=token)


def _start(client: kubernetes.Clientset, names: list[str]) -> None:
    """Create the pods, and wait until all are ready."""
    pods = client.core_v1.pods(NAMESPACE)
    watched = Watched(pods)
    for name in names:
        pods.create(golang.background(), _pod(name))
    watched.wait_ready(*names)
    watched.stop()


def _seconds_to_mounted(log: Path, names: list[str]) -> Iterator[float]:
    """Yield for each pod the seconds from its first sync until all its volumes were mounted for the first time."""
    added: dict[str, datetime] = {}
    mounted: dict[str, datetime] = {}
    for line in log.read_text().splitlines():
        known = added if _ADDED in line else mounted if _MOUNTED in line else None
        at = _TIME.match(line)
        if known is not None and at is not None:
            for name in _POD.findall(line):
                known.setdefault(name, datetime.strptime(at[1], "%H:%M:%S.%f"))
    for name in names:
        # The log has only times of day. `seconds` is right even if midnight lies between the two times.
        yield (mounted[name] - added[name]).seconds + (mounted[name] - added[name]).microseconds / 1e6


def main() -> None:
    for name, figure in mounting().items():
        print(f"{name:24} {figure:10.3f}")


if __name__ == "__main__":
    main()
