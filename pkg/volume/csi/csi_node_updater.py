"""Ask drivers for the node's volume limit, with the period that their CSIDriver objects set.

Go: pkg/volume/csi/csi_node_updater.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.storage import v1 as storagev1
from pkg.apimachinery import clock as clocklib
from pkg.volume.csi import csi_drivers_store

if TYPE_CHECKING:
    from pkg.client_go.tools import cache


class CSINodeUpdater:
    """Run a thread for each registered driver whose CSIDriver object sets a period.

    All threads end with ctx. Every method is safe from any thread.
    """

    def __init__(
        self,
        ctx: golang.Context,
        driver_informer: cache.SharedIndexInformer[storagev1.CSIDriver],
        csi_drivers: csi_drivers_store.DriversStore,
        update_csi_driver: Callable[[str], None],
        clock: clocklib.Clock,
    ) -> None:
        """Create an updater; update_csi_driver asks the driver and updates the cluster. Its errors are logged."""
        self._ctx = ctx
        self._driver_informer = driver_informer
        self._csi_drivers = csi_drivers
        self._update_csi_driver = update_csi_driver
        self._clock = clock
        self._lock = threading.Lock()  # `sync_driver_updater` holds this lock, which guards `_driver_updaters`.
        # `_driver_updaters` holds the functions that end the threads of the drivers.
        self._driver_updaters: dict[str, Callable[[], None]] = {}

    def run(self) -> None:
        """Follow the CSIDriver objects from now on. Call this method once."""
        # A kubelet without an API server does not need this module.
        from pkg.client_go.tools import cache

        self._driver_informer.add_event_handler(
            cache.ResourceEventHandlerFuncs(
                add_func=self._on_driver_add,
                update_func=self._on_driver_update,
                delete_func=self._on_driver_delete,
            )
        )
        klog.v(4).info_s("csiNodeUpdater initialized successfully")

    def _on_driver_add(self, driver: storagev1.CSIDriver) -> None:
        klog.v(7).info_s("onDriverAdd event", driver=driver.metadata.name)
        self.sync_driver_updater(driver.metadata.name)

    def _on_driver_update(self, old_driver: storagev1.CSIDriver, new_driver: storagev1.CSIDriver) -> None:
        old_period = get_node_allocatable_update_period(old_driver)
        new_period = get_node_allocatable_update_period(new_driver)
        if old_period != new_period:
            klog.v(4).info_s(
                "NodeAllocatableUpdatePeriodSeconds updated",
                driver=new_driver.metadata.name,
                oldPeriod=old_period,
                newPeriod=new_period,
            )
            self.sync_driver_updater(new_driver.metadata.name)

    def _on_driver_delete(self, obj: storagev1.CSIDriver | cache.DeletedFinalStateUnknown) -> None:
        if isinstance(obj, storagev1.CSIDriver):
            klog.v(7).info_s("onDriverDelete event", driver=obj.metadata.name)
            self.sync_driver_updater(obj.metadata.name)

    def sync_driver_updater(self, driver_name: str) -> None:
        """Start, restart or end the driver's thread according to its registration and its CSIDriver object.

        DIVERGES (fault of Go): registrations and changes of the driver's object take effect one after the other.
        Go: pkg/volume/csi/csi_node_updater.go, (*csiNodeUpdater).syncDriverUpdater: registrations and changes may take
        effect concurrently, and one that has read the old object may take effect last.
        Why: the kubelet would ask the driver with the old period until the object changes again.
        Test: csi_node_updater_test.py:test_registration_during_a_change_of_the_object
        """
        with self._lock:
            self._sync_driver_updater_locked(driver_name)

    def _sync_driver_updater_locked(self, driver_name: str) -> None:
        if not self.is_driver_installed(driver_name):
            klog.v(4).info_s("Driver not installed; stopping csiNodeUpdater", driver=driver_name)
            self._unregister_driver_locked(driver_name)
            return
        driver = self._driver_informer.get_indexer().get_by_key(driver_name)
        if driver is None:
            klog.info_s("CSIDriver object not found; stopping csiNodeUpdater", driver=driver_name)
            self._unregister_driver_locked(driver_name)
            return
        period = get_node_allocatable_update_period(driver)
        if period == 0:
            klog.v(7).info_s(
                "NodeAllocatableUpdatePeriodSeconds is not configured; disabling updates", driver=driver_name
            )
            self._unregister_driver_locked(driver_name)
            return
        # A thread that is already running has the old period.
        self._unregister_driver_locked(driver_name)
        ctx, self._driver_updaters[driver_name] = golang.with_cancel(self._ctx)
        try:
            golang.go(self._run_periodic_update, ctx, driver_name, period, name=f"csi-node-updater-{driver_name}")
        except golang.ThreadError as err:
            # The node keeps its present limit until the driver registers again or its object changes.
            klog.error_s(err, "Failed to start the periodic updates of the volume limit", driver=driver_name)
            self._unregister_driver_locked(driver_name)

    def _unregister_driver_locked(self, driver_name: str) -> None:
        cancel = self._driver_updaters.pop(driver_name, None)
        if cancel is not None:
            cancel()

    def _run_periodic_update(self, ctx: golang.Context, driver_name: str, period: float) -> None:
        ticker = self._clock.new_ticker(period)
        klog.v(7).info_s("Starting periodic updates for driver", driver=driver_name, period=period)
        try:
            while ctx.err() is None:
                if golang.select(ctx.done(), ticker.channel).took(ticker.channel):
                    self._update(driver_name)
        finally:
            ticker.stop()
        klog.v(4).info_s("Stopping periodic updates for driver", driver=driver_name, period=period)

    def _update(self, driver_name: str) -> None:
        try:
            self._update_csi_driver(driver_name)
        except Exception as err:
            # Whatever the error is, it may be over at the next update.
            klog.error_s(err, "Failed to update CSIDriver", driver=driver_name)

    def is_driver_installed(self, driver_name: str) -> bool:
        """Report whether the driver is registered on this node."""
        return self._csi_drivers.get(driver_name) is not None


def get_node_allocatable_update_period(driver: storagev1.CSIDriver | None) -> float:
    """Return the period in seconds, or 0 if there is none or it is invalid."""
    period = driver.spec.node_allocatable_update_period_seconds if driver is not None else None
    return float(max(period or 0, 0))
