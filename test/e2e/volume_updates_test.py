"""Test that volumes in running containers follow the objects whose content they have, and change all files at once.

On the local cluster the tests cover each way in which a kubelet detects changes, with short periods. A container reads
all files of its volumes again and again, and logs every new set:

- changes come in time, whole: test_changes_arrive_in_time_and_at_once
- what must not change: test_immutable_objects_are_not_followed, test_sub_paths_stay_as_they_were
- what appears and disappears: test_optional_object_that_comes_later, test_object_that_goes_and_comes_back
- tokens: test_token_is_replaced_before_it_ends
- any cluster: test_container_sees_a_change
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from framework.cluster_client import TIMEOUT, Namespace
from framework.local_cluster import SHORTEST_TOKEN, LocalCluster
from framework.pod_ways import ContainerLog, Pods, teller
from framework.pods import Manifest, pod
from framework.volumes import looker, mounted, once, put_config_map, put_secret, review, told
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api

STRATEGIES = ("Watch", "Cache", "Get")
# All three are in seconds. `SYNC` is the time between two syncs of a pod, which may grow by half. `TTL` is the time for
# which a caching kubelet keeps an object; an annotation of the node sets this time. `SLACK` is the extra time of a busy
# machine.
SYNC, TTL, SLACK = 2.0, 3, 40.0
TTL_ANNOTATION = "node.alpha.kubernetes.io/ttl"
AGAIN = 2 * TIMEOUT
LINES = 1000
FILES = ("a", "b", "c")
DIRECTORIES = ("map", "secret", "all", "info", "fixed", "later")
# The script counts, for each directory, how often each line occurs in all files together, and logs the counts whenever
# they change. Files that vanish during the read do not count, because the next set exists by then.
READ = """
look() {
  (cd "$1/..data" || { echo gone; exit; }; all=$(cat a b c 2>/dev/null) && echo "$all" | uniq -c)
}
tell() { eval "last=\\$last_$1"; [ "$2" = "$last" ] && return; eval "last_$1=\\$2"; say "$1 $2"; }
trap 'exit 0' TERM
while true; do
  for each in map secret all info fixed later; do
    found=$(look "/$each") && tell "$each" "$(echo $found)"
  done
  tell sub "$(echo $(uniq -c /sub))"
  tell token "$(cat /token/token)"
done
"""


@dataclass
class Reader:
    """Hold the pod that reads, and its log."""

    strategy: str
    namespace: Namespace
    pods: Pods
    log: ContainerLog
    number: int = 1

    @property
    def name(self) -> str:
        return reader_name(self.strategy)

    def put(self, number: int, *kinds: str) -> None:
        put(self.namespace, self.name, number, *kinds)

    def wait_for(self, directory: str, number: int, lines: int = 3 * LINES) -> float:
        """Return the time at which the log first shows that all files of a directory contain only this number."""
        return self.pods.wait_for_said(self.log, f"{directory} {lines} {number}")[0]

    def told(self, directory: str) -> list[str]:
        """List everything that was logged about a directory."""
        words = (said.text.split(" ", 1) for said in self.log.lines())
        return [rest for name, rest in words if name == directory]


def reader_name(strategy: str) -> str:
    return f"reads-{strategy.lower()}"


def put(namespace: Namespace, name: str, number: int, *kinds: str) -> None:
    """Write this number into all lines of all files."""
    text = f"{number}\n" * LINES
    for kind in kinds:
        if kind == "secret":
            put_secret(namespace, f"{name}-secret", dict.fromkeys(FILES, text.encode()))
        else:
            fixed = True if kind == "fixed" else None
            put_config_map(namespace, f"{name}-{kind}", dict.fromkeys(FILES, text), immutable=fixed)


def reads(name: str) -> Manifest:
    def config_map(kind: str, **fields: object) -> dict[str, object]:
        return {"configMap": {"name": f"{name}-{kind}", **fields}}

    info = [{"path": path, "fieldRef": {"fieldPath": "metadata.labels['number']"}} for path in FILES]
    both = [
        {"configMap": {"name": f"{name}-map", "items": [{"key": "a", "path": "a"}, {"key": "b", "path": "b"}]}},
        {"configMap": {"name": f"{name}-map", "items": [{"key": "c", "path": "c"}]}},
    ]
    token = {"path": "token", "expirationSeconds": 600}  # This is the shortest lifetime of a token.
    volumes = [
        {"name": "map", **config_map("map")},
        {"name": "secret", "secret": {"secretName": f"{name}-secret"}},
        {"name": "all", "projected": {"sources": both}},
        {"name": "info", "downwardAPI": {"items": info}},
        {"name": "fixed", **config_map("fixed")},
        {"name": "later", **config_map("later", optional=True)},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]
    mounts = [mounted(each, f"/{each}") for each in (*DIRECTORIES, "token")]
    mounts.append(mounted("map", "/sub", subPath="a"))
    # The limit leaves CPU for other pods, because this pod never rests.
    limits = {"limits": {"cpu": "250m"}}
    made = pod(name, teller(READ, volumeMounts=mounts, resources=limits), volumes=volumes)
    made["metadata"]["labels"] = {"number": "1"}
    return made


def set_ttl(local: LocalCluster, namespace: Namespace, seconds: int | None) -> None:
    text = None if seconds is None else str(seconds)
    namespace.core.patch_node(namespace.node, {"metadata": {"annotations": {TTL_ANNOTATION: text}}})


@pytest.fixture(scope="module", autouse=True)
def follower(namespace: Namespace) -> None:
    """Create a pod that ends when it has seen the last value, which is written once the pod runs."""
    put_config_map(namespace, "followed", {"key": "first"})
    script = 'echo first; until [ "$(cat /v/key)" = last ]; do sleep 0.2; done; cat /v/key'
    volume = {"name": "v", "configMap": {"name": "followed"}}
    namespace.create(once("follows", looker(script, volumeMounts=[mounted("v", "/v")]), volumes=[volume]))
    namespace.wait_for_running("follows")
    put_config_map(namespace, "followed", {"key": "last"})


@pytest.fixture(scope="module", params=STRATEGIES)
def reader(
    request: pytest.FixtureRequest, local: LocalCluster, namespace: Namespace, both_ways: dict[str, Pods]
) -> Iterator[Reader]:
    strategy, pods = request.param, both_ways["api"]
    config = {"configMapAndSecretChangeDetectionStrategy": strategy, "syncFrequency": f"{SYNC:g}s"}
    with local.kubelet.configured(config):
        set_ttl(local, namespace, TTL)
        name = reader_name(strategy)
        put(namespace, name, 1, "map", "secret", "fixed")
        namespace.create(reads(name))
        namespace.wait_for_running(name)
        yield Reader(strategy, namespace, pods, pods.log(name))
        namespace.core.delete_namespaced_pod(name, namespace.name)
        namespace.wait_deleted(name)
        set_ttl(local, namespace, None)


def uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


@pytest.mark.local
def test_changes_arrive_in_time_and_at_once(reader: Reader) -> None:
    allowed = 1.5 * SYNC + (TTL if reader.strategy == "Cache" else 0) + SLACK
    for directory in ("map", "secret", "all", "fixed"):
        reader.wait_for(directory, 1)
    for number in range(2, 7):
        changed = uptime()
        reader.put(number, "map", "secret")
        labels = {"metadata": {"labels": {"number": str(number)}}}
        reader.namespace.core.patch_namespaced_pod(reader.name, reader.namespace.name, labels)
        arrived = {directory: reader.wait_for(directory, number) for directory in ("map", "secret", "all")}
        # The three files of this directory have no line ends.
        (arrived["info"],) = reader.pods.wait_for_said(reader.log, f"info 1 {3 * str(number)}")
        assert {name: at - changed for name, at in arrived.items() if at - changed > allowed} == {}
        reader.number = number
    for directory in ("map", "secret", "all"):
        assert reader.told(directory) == [f"{3 * LINES} {number}" for number in range(1, 7)]
    assert reader.told("info") == [f"1 {3 * str(number)}" for number in range(1, 7)]


@pytest.mark.local
def test_sub_paths_stay_as_they_were(reader: Reader) -> None:
    assert reader.told("sub") == [f"{LINES} 1"]


@pytest.mark.local
def test_optional_object_that_comes_later(reader: Reader) -> None:
    assert reader.told("later") == []

    reader.put(1, "later")

    reader.wait_for("later", 1)


@pytest.mark.local
def test_immutable_objects_are_not_followed(core: CoreV1Api, reader: Reader) -> None:
    """A kubelet that watches objects does not follow immutable ones.

    Kubelets with other strategies request immutable objects like any other object.
    """
    core.delete_namespaced_config_map(f"{reader.name}-fixed", reader.namespace.name)
    reader.put(2, "fixed")
    if reader.strategy != "Watch":
        reader.wait_for("fixed", 2)
        return

    # Each of these changes needs a sync of the pod, so the kubelet has synced the pod twice afterwards.
    for _ in range(2):
        reader.number += 1
        reader.put(reader.number, "map")
        reader.wait_for("map", reader.number)

    assert reader.told("fixed") == [f"{3 * LINES} 1"]


@pytest.mark.local
def test_object_that_goes_and_comes_back(core: CoreV1Api, reader: Reader) -> None:
    before = reader.told("secret")
    name = f"{reader.name}-secret"
    core.delete_namespaced_secret(name, reader.namespace.name)

    # A kubelet that requests objects repeats the API server's message, which has the plural form.
    message = f'MountVolume.SetUp failed for volume "secret" : secrets? "{name}" not found'
    reader.namespace.wait_for_event(reader.name, "FailedMount", message)
    assert reader.told("secret") == before

    reader.put(100, "secret")

    reader.wait_for("secret", 100)
    assert reader.told("secret") == [*before, f"{3 * LINES} 100"]


@pytest.mark.local
def test_token_is_replaced_before_it_ends(reader: Reader) -> None:
    wait_for("a second token", lambda: len(reader.told("token")) > 1, AGAIN, reader.log.raw)

    found = [(said.at, said.text.split(" ", 1)[1]) for said in reader.log.lines() if said.text.startswith("token ")]
    for (before, old), (after, new) in pairwise(found):
        assert old != new
        assert after - before < SHORTEST_TOKEN
    reviewed = review(reader.namespace.api, reader.told("token")[-1])
    assert reviewed.authenticated and reviewed.user.extra["authentication.kubernetes.io/pod-name"] == [reader.name]


def test_container_sees_a_change(namespace: Namespace) -> None:
    assert told(namespace, "follows", timeout=AGAIN) == "first\nlast"
