"""Test that the kubelet corrects its own fields in a pod's status, and leaves the fields of others alone."""

from __future__ import annotations

import secrets

from framework.cluster_client import Condition, Namespace, conditions, is_running, restarts
from framework.pods import pod, sleeper
from kubernetes.client import CoreV1Api

FOREIGN = "example.com/foreign"
FOREIGN_READY = Condition("False", "Foreign")


def test_foreign_change_of_the_status_is_put_right(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.create(pod("changed", sleeper()))
    (before,) = namespace.wait_for_running("changed")

    foreign = {"phase": "Pending", "message": "somebody else's"}
    core.patch_namespaced_pod_status("changed", namespace.name, {"status": foreign})
    ready = {"type": "Ready", "status": "False", "reason": "Foreign"}
    core.patch_namespaced_pod_status("changed", namespace.name, {"status": {"conditions": [ready]}})

    namespace.wait_for_seen("changed", "the change", lambda found: conditions(found).get("Ready") == FOREIGN_READY)
    after = namespace.wait_for("changed", "corrected", is_running)
    assert after.status.message == before.status.message
    assert conditions(after) == conditions(before)
    assert restarts(after) == 0


def test_foreign_condition_is_kept(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.create(pod("marked", sleeper()))
    namespace.wait_for_running("marked")

    foreign = {"type": FOREIGN, "status": "True", "reason": "Because", "message": "not the kubelet's"}
    core.patch_namespaced_pod_status("marked", namespace.name, {"status": {"conditions": [foreign]}})
    # The change of the deadline makes the kubelet write the whole status again.
    core.patch_namespaced_pod("marked", namespace.name, {"spec": {"activeDeadlineSeconds": 2}})

    ended = namespace.wait_for("marked", "Failed", lambda found: found.status.phase == "Failed")
    kept = conditions(ended)[FOREIGN]
    assert (kept.status, kept.reason, kept.message) == ("True", "Because", "not the kubelet's")


def test_labels_and_annotations_change_without_a_restart(core: CoreV1Api, namespace: Namespace) -> None:
    namespace.create(pod("labelled", sleeper()))
    (before,) = namespace.wait_for_running("labelled")

    marks = {"labels": {"a": "1"}, "annotations": {"b": "2"}}
    core.patch_namespaced_pod("labelled", namespace.name, {"metadata": marks})
    # This change follows the first one on the same path, so its effect shows that the kubelet has handled both.
    core.patch_namespaced_pod("labelled", namespace.name, {"spec": {"activeDeadlineSeconds": 3600}})

    after = namespace.wait_for(
        "labelled",
        "the generation observed",
        lambda found: found.status.observed_generation == found.metadata.generation > before.metadata.generation,
    )
    assert (after.metadata.labels["a"], after.metadata.annotations["b"]) == ("1", "2")
    assert after.status.container_statuses[0].container_id == before.status.container_statuses[0].container_id
    assert all(is_running(each.object) for each in namespace.history("labelled")[-2:])


def test_pod_of_another_node_is_left_alone(core: CoreV1Api, namespace: Namespace) -> None:
    name = "elsewhere"
    namespace.create(pod(name, sleeper()), node=f"no-such-node-{secrets.token_hex(3)}")
    namespace.create(pod("here", sleeper()))

    namespace.wait_for_running("here")

    found = namespace.wait_for(name, "there", lambda found: True)
    assert found.status.phase == "Pending"
    assert found.status.start_time is None and not found.status.container_statuses
    assert not [each for each in namespace.events_of(name) if each.source.component == "kubelet"]
    core.delete_namespaced_pod(name, namespace.name, grace_period_seconds=0)


def test_resources_show_the_class_of_service(namespace: Namespace) -> None:
    limits = {"limits": {"cpu": "100m", "memory": "32Mi"}}
    namespace.create(pod("guaranteed", sleeper(resources=limits)))
    namespace.create(pod("burstable", sleeper(resources={"requests": {"cpu": "10m"}})))

    guaranteed, burstable = namespace.wait_for_running("guaranteed", "burstable")

    assert (guaranteed.status.qos_class, burstable.status.qos_class) == ("Guaranteed", "Burstable")
    told = guaranteed.status.container_statuses[0].resources
    assert told is not None and {key: str(value) for key, value in told.limits.items()} == limits["limits"]
