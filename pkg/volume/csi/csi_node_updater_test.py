"""Test the periodic updates of a driver's volume limit.

Go: pkg/volume/csi/csi_node_updater_test.go
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.waiting import wait_for, wait_until_equal

from pkg import golang
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.volume.csi import csi_node_updater
from pkg.volume.csi.testing import TEST_DRIVER, TestPlugin

WAIT = 30.0


def csi_driver(period: int | None) -> storagev1.CSIDriver:
    return storagev1.CSIDriver(
        metadata=metav1.ObjectMeta(name=TEST_DRIVER),
        spec=storagev1.CSIDriverSpec(node_allocatable_update_period_seconds=period),
    )


class World(TestPlugin):
    """Hold an updater that follows the CSIDriver objects, and record the drivers that it asks."""

    __test__ = False

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.clock = FakeClock()
        self.asked = golang.Channel[str](10)
        self.ctx, self.cancel = golang.with_cancel(golang.background())

    def start(self) -> None:
        informer = self.host.csi_driver_informer
        assert informer is not None
        drivers = self.plugin.csi_drivers
        self.updater = csi_node_updater.CSINodeUpdater(self.ctx, informer, drivers, self.ask, self.clock)
        self.updater.run()

    def ask(self, name: str) -> None:
        self.asked.send(name)
        if len(self.asked) > 1:
            raise RuntimeError("asked too often")

    def wait_for_waiters(self, count: int) -> None:
        wait_until_equal("threads that wait", self.clock.waiters, count)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as one:
        one.start()
        yield one
        one.cancel()


def test_driver_is_asked_as_often_as_its_object_says(world: World) -> None:
    world.client.add(csi_driver(60))
    world.wait_for_waiters(1)
    world.clock.step(59)
    assert len(world.asked) == 0
    world.clock.step(1)
    assert world.asked.recv(WAIT) == (TEST_DRIVER, True)
    world.client.add(csi_driver(10))

    def asked_after_ten_seconds() -> bool:
        world.clock.step(10)
        return len(world.asked) > 0

    wait_for("the new period is used", asked_after_ten_seconds)


@pytest.mark.parametrize("end", ["no period", "no object", "no driver", "end of the kubelet"])
def test_end_of_the_questions(world: World, end: str) -> None:
    world.client.add(csi_driver(60))
    world.wait_for_waiters(1)
    match end:
        case "no period":
            world.client.add(csi_driver(None))
        case "no object":
            world.client.remove(csi_driver(60))
        case "no driver":
            world.plugin.csi_drivers.clear()
            world.updater.sync_driver_updater(TEST_DRIVER)
        case _:
            world.cancel()
    world.wait_for_waiters(0)


def test_driver_that_registers_after_its_object(world: World) -> None:
    world.plugin.csi_drivers.clear()
    world.client.add(csi_driver(60))
    world.register(TEST_DRIVER)
    world.updater.sync_driver_updater("unknown")

    def waits_for_its_turn() -> bool:
        world.updater.sync_driver_updater(TEST_DRIVER)
        return world.clock.has_waiters()

    wait_for("the update waits for its turn", waits_for_its_turn)
    world.wait_for_waiters(1)


def test_registration_during_a_change_of_the_object(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object that the registration has read must not take effect after a newer one."""
    world.client.add(csi_driver(60))
    world.wait_for_waiters(1)
    indexer = world.updater._driver_informer.get_indexer()
    read, goes_on = golang.Channel[None](), golang.Channel[None]()
    get_by_key = indexer.get_by_key

    def get_slowly(key: str) -> storagev1.CSIDriver | None:
        driver = get_by_key(key)
        monkeypatch.undo()
        read.send(None)
        goes_on.recv(WAIT)
        return driver

    monkeypatch.setattr(indexer, "get_by_key", get_slowly)
    registration = golang.go(world.updater.sync_driver_updater, TEST_DRIVER, name="registration")
    read.recv(WAIT)
    world.client.add(csi_driver(None))
    period = csi_node_updater.get_node_allocatable_update_period
    wait_for("the change arrives", lambda: not period(get_by_key(TEST_DRIVER)))
    event = golang.go(world.updater.sync_driver_updater, TEST_DRIVER, name="event")
    event.join(0.2)
    goes_on.close()
    registration.join(WAIT)
    event.join(WAIT)
    assert not world.updater._driver_updaters
    world.wait_for_waiters(0)


def test_get_node_allocatable_update_period() -> None:
    assert csi_node_updater.get_node_allocatable_update_period(None) == 0
    assert csi_node_updater.get_node_allocatable_update_period(csi_driver(None)) == 0
    assert csi_node_updater.get_node_allocatable_update_period(csi_driver(30)) == 30
    assert csi_node_updater.get_node_allocatable_update_period(csi_driver(-30)) == 0
