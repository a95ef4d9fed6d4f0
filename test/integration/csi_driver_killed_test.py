"""Test that no volume is lost or left behind when its driver, alone or with the kubelet, is killed at any call.

Each volume stops at a call of its own. Then the test kills the driver, and in some cases the kubelet, once for all
volumes. The mount table and the driver's call log show whether anything was lost, left behind, or done out of order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import pytest
from csi_driver import faults
from framework import csi_story
from framework.apiserver.cluster import Cluster
from framework.csi import EXPAND, PUBLISH, STAGE, UNPUBLISH, UNSTAGE
from framework.csi_story import Step, Story, steps
from framework.pod_history import PodHistory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

COMING = steps(STAGE, PUBLISH, late=[False])
GOING = steps(UNPUBLISH, UNSTAGE, late=[False])


@pytest.fixture(scope="module")
def story(cluster: Cluster, history: PodHistory) -> Iterator[Story]:
    with csi_story.of("csi-driver-killed", cluster, history) as story:
        yield story


def test_driver_is_killed_while_volumes_come_and_while_they_go(story: Story) -> None:
    come_and_go(story, GOING, story.kill_driver)


def test_both_are_killed_while_volumes_come_and_while_they_go(story: Story) -> None:
    # Once its driver has unpublished a block device, nothing on the node shows a new kubelet that it must repeat the
    # call.
    forgotten = Step(UNPUBLISH, faults.AFTER, block=True)
    come_and_go(story, [each for each in GOING if each != forgotten], story.kill_both)


def come_and_go(story: Story, going: Sequence[Step], kill: Callable[[], None]) -> None:
    prefix = story.new_round()
    for step in COMING:
        story.stop_at(prefix, step)
    names = [story.create(prefix, step) for step in [*COMING, *going]]
    story.wait_until_stopped(prefix, COMING)
    kill()
    story.assert_in_use(names)
    for step in going:
        story.stop_at(prefix, step)
    story.delete(names)
    story.wait_until_stopped(prefix, going)
    kill()
    story.assert_gone(names)


@pytest.mark.parametrize("both", [False, True], ids=["driver", "both"])
def test_killed_while_volumes_grow(story: Story, both: bool) -> None:
    prefix, several = story.new_round(), steps(EXPAND, late=[False])
    names = [story.create(prefix, step) for step in several]
    story.assert_in_use(names)
    for step in several:
        story.stop_at(prefix, step)
    story.grow(names)
    story.wait_until_stopped(prefix, several)
    if both:
        story.kill_both()
    else:
        story.kill_driver()
    story.assert_grown(names)
    story.delete(names)
    story.assert_gone(names)
