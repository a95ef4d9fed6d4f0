"""Test that pods have their volumes, or nothing is left, after the kubelet was killed at any call for a volume.

Each volume stops at a call of its own. Then the test kills the kubelet once for all volumes. The mount table and the
driver's call log show whether anything was lost, left behind, or done out of order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from framework import csi_story
from framework.apiserver.cluster import Cluster
from framework.csi import EXPAND, PUBLISH, STAGE, UNPUBLISH, UNSTAGE
from framework.csi_story import Story, steps
from framework.pod_history import PodHistory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

COMING = steps(STAGE, PUBLISH)
GOING = steps(UNPUBLISH, UNSTAGE)


@pytest.fixture(scope="module")
def story(cluster: Cluster, history: PodHistory) -> Iterator[Story]:
    with csi_story.of("csi-killed", cluster, history) as story:
        yield story


def test_killed_while_volumes_come(story: Story) -> None:
    prefix = story.new_round()
    for step in COMING:
        story.stop_at(prefix, step)
    names = [story.create(prefix, step) for step in COMING]
    story.wait_until_stopped(prefix, COMING)
    story.kill_kubelet(prefix, COMING)
    story.assert_in_use(names)
    story.delete(names)
    story.assert_gone(names)


def test_killed_while_volumes_go(story: Story) -> None:
    prefix = story.new_round()
    names = [story.create(prefix, step) for step in GOING]
    story.assert_in_use(names)
    for step in GOING:
        story.stop_at(prefix, step)
    story.delete(names)
    story.wait_until_stopped(prefix, GOING)
    story.kill_kubelet(prefix, GOING)
    story.assert_gone(names)


def test_pods_are_gone_when_it_comes_back_that_was_killed_while_volumes_came(story: Story) -> None:
    prefix, several = story.new_round(), steps(STAGE, PUBLISH, late=[False])
    for step in several:
        story.stop_at(prefix, step)
    names = [story.create(prefix, step) for step in several]
    story.wait_until_stopped(prefix, several)
    story.kill_kubelet(prefix, several, lambda: story.delete(names, 0))
    story.assert_gone(names)


def test_killed_while_volumes_grow(story: Story) -> None:
    prefix, several = story.new_round(), steps(EXPAND)
    names = [story.create(prefix, step) for step in several]
    story.assert_in_use(names)
    for step in several:
        story.stop_at(prefix, step)
    story.grow(names)
    story.wait_until_stopped(prefix, several)
    story.kill_kubelet(prefix, several)
    story.assert_grown(names)
    story.delete(names)
    story.assert_gone(names)
