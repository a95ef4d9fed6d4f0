"""Run the loop that reconciles the desired and the actual state of volumes.

Go: pkg/kubelet/volumemanager/reconciler/reconciler.go
"""

from __future__ import annotations

from kubelet.volumemanager.reconciler.reconstruct import ReconstructMethods
from pkg import golang, klog
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.util.runtime import contain

# `RESYNC_PERIOD` is the time, in seconds, between two passes when no event arrives.
RESYNC_PERIOD = 10.0
# After each pass the loop rests for REST_FACTOR times the duration of the pass, so that many small events do not keep a
# core busy. LONGEST_REST, in seconds, limits the rest.
REST_FACTOR = 4
LONGEST_REST = 0.1
_CLOCK = clocklib.RealClock()


class Reconciler(ReconstructMethods):
    """Reconcile volumes on one thread, which starts operations and never waits for them.

    Every method that other threads call is thread-safe.
    """

    def run(self, ctx: golang.Context) -> None:
        """Reconcile until ctx ends, whenever something has changed or a failed operation may be tried again."""
        reconstructed = self._try_to_reconstruct(ctx)
        tried = _CLOCK.monotonic()
        klog.info_s("Reconciler: start to sync state")
        update: golang.Thread | None = None
        while ctx.err() is None:
            began = _CLOCK.monotonic()
            if not reconstructed and began - tried >= RESYNC_PERIOD:
                reconstructed = self._try_to_reconstruct(ctx)
                tried = _CLOCK.monotonic()
            if not self._devices_are_known() and (update is None or not update.is_alive()):
                # If the thread cannot be started, the next pass tries again. Nothing is unmounted until the thread has
                # run.
                with contain("Failed to start the update of device paths from the node's status", ctx):
                    update = golang.go(self.update_reconstructed_from_node_status, ctx, name="volume-reconstruction")
            with contain("Failed to reconcile volumes", ctx):
                self.reconcile()
            with contain("Failed to report which volumes are in use", ctx):
                self._on_reconciled()
            ctx.wait(min(REST_FACTOR * (_CLOCK.monotonic() - began), LONGEST_REST))
            retry = self._operation_executor.next_retry()
            golang.select(self._wake, ctx.done(), timeout=RESYNC_PERIOD if retry is None else min(retry, RESYNC_PERIOD))
        if update is not None:
            update.join()

    def _try_to_reconstruct(self, ctx: golang.Context) -> bool:
        """Reconstruct volumes, and report whether everything on disk could be read."""
        with contain("Failed to reconstruct volumes", ctx):
            return self.reconstruct_volumes()
        return False

    def wake(self) -> None:
        """Make the loop run another pass now."""
        self._wake.try_send(None)

    def reconcile(self) -> None:
        """Run one pass: unmount what no pod needs, then mount what pods need."""
        ready_to_unmount = self._ready_to_unmount()
        if ready_to_unmount:
            self._rename_reconstructed_volumes()
            # Unmount first, so that a volume is free before another pod gets it.
            self.unmount_volumes()
        self.mount_or_attach_volumes()
        if ready_to_unmount:
            # Clean up orphans before devices, unlike Go: a device must stay while an unidentified pod directory may use
            # it.
            self._clean_orphan_volumes()
            self.unmount_detach_devices()
        self._update_last_sync_time()
