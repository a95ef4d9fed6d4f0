"""Test that a CSI driver registers although the kubelet or the driver is killed at any call of the registration."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from csi_driver import faults
from framework import csi_story
from framework.apiserver.cluster import Cluster
from framework.apiserver.controllers import base
from framework.csi_story import DRIVER, TIMEOUT, Story
from framework.pod_history import PodHistory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

NODE = "csi-registers"
# A registration makes these calls in this order.
CALLS = ("GetInfo", "NodeGetInfo", "NotifyRegistrationStatus")


@pytest.fixture(scope="module")
def story(cluster: Cluster, history: PodHistory) -> Iterator[Story]:
    with csi_story.of(NODE, cluster, history) as story:
        yield story


def registered(story: Story) -> bool:
    """Report whether the node's CSINode object lists the driver."""
    found = base.find(story.cluster.store, "csinodes", NODE)
    return found is not None and [each["name"] for each in found["spec"]["drivers"]] == [DRIVER]


def registrations(story: Story) -> list[str]:
    """List the results of the driver's registrations: an error, or an empty string for success."""
    calls = story.driver.calls("NotifyRegistrationStatus")
    assert all(call.request.get("plugin_registered", False) != bool(call.request.get("error")) for call in calls)
    return [call.request.get("error", "") for call in calls]


def wait_for_registrations(story: Story, count: int) -> list[str]:
    def look() -> list[str]:
        found = registrations(story)
        return found if len(found) >= count else []

    return story.node.wait_for_condition(f"{count} registrations", look, TIMEOUT)


def test_driver_that_is_killed_registers_again(story: Story) -> None:
    before = len(registrations(story))
    story.kill_driver()
    wait_for_registrations(story, before + 1)
    assert registered(story)


def test_driver_that_ends_is_no_longer_the_nodes(story: Story) -> None:
    story.driver.stop()
    story.node.wait_for_condition("the driver is forgotten", lambda: not registered(story), TIMEOUT)
    before = len(registrations(story))
    story.driver.start()
    wait_for_registrations(story, before + 1)
    assert registered(story)


def test_kubelet_that_is_killed_registers_the_driver_again(story: Story) -> None:
    """A killed kubelet registers the driver again, and the CSINode object keeps the driver in between."""
    before = len(registrations(story))
    watch = story.cluster.store.watch("csinodes")
    story.kill_kubelet("", [])
    wait_for_registrations(story, before + 1)
    seen = list(watch.pending())
    watch.stop()
    assert seen and all(each.object["spec"]["drivers"] for each in seen)


def test_registration_that_fails_is_tried_again(story: Story) -> None:
    before = len(registrations(story))
    story.driver.stop()
    story.driver.let("NodeGetInfo", faults.FAIL, times=1, message="not just now")
    story.driver.start()
    told = wait_for_registrations(story, before + 2)[before:]
    assert "not just now" in told[0] and told[-1] == "", told
    assert registered(story)


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("who", ["kubelet", "driver"])
def test_killed_while_the_driver_registers(story: Story, method: str, who: str) -> None:
    """The driver registers although it, or the kubelet, was killed during the registration.

    A call of the killed kubelet continues while the new kubelet makes its own.
    """
    driver = story.driver
    driver.stop()
    story.node.wait_for_condition("the driver is forgotten", lambda: not registered(story), TIMEOUT)
    driver.let(method, faults.WAIT)
    driver.start()
    driver.wait_for_waiting(method, timeout=TIMEOUT)
    before = len(registrations(story))
    if who == "kubelet":
        story.kill_kubelet("", [])
    else:
        story.kill_driver()

    wait_for_registrations(story, before + 1)
    # The driver may register twice, once more because its socket is new.
    story.node.wait_for_condition("the node has the driver", lambda: registered(story), TIMEOUT)
    assert registrations(story)[-1] == ""
    driver.forget_faults()
