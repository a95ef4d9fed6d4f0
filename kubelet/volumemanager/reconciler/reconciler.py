"""The loop that makes the actual state the desired one.

Go: pkg/kubelet/volumemanager/reconciler/reconciler.go
"""

from __future__ import annotations

from kubelet.volumemanager.reconciler.reconstruct import ReconstructMethods
from pkg import golang, klog
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.util.runtime import contain

# Seconds: how often all is looked at although nothing was announced.
RESYNC_PERIOD = 10.0
# After a round the loop rests so many times as long as the round took, lest many small events keep a core busy; but no
# longer than this, in seconds.
REST_FACTOR = 4
LONGEST_REST = 0.1
_CLOCK = clocklib.RealClock()


class Reconciler(ReconstructMethods):
    """run() starts what is needed and never waits for it; everything else is safe from any thread."""

    def run(self, ctx: golang.Context) -> None:
        """Reconcile when something has changed or what failed may be tried again, until ctx ends."""
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
                # Without a thread for it, the next round tries again: until it has run, nothing is unmounted.
                with contain("Failed to start learning from the node's status where devices are", ctx):
                    update = golang.go(self.update_reconstructed_from_node_status, ctx, name="volume-reconstruction")
            with contain("Failed to reconcile volumes", ctx):
                self.reconcile()
            with contain("Failed to tell which volumes are in use", ctx):
                self._on_reconciled()
            ctx.wait(min(REST_FACTOR * (_CLOCK.monotonic() - began), LONGEST_REST))
            retry = self._operation_executor.next_retry()
            golang.select(self._wake, ctx.done(), timeout=RESYNC_PERIOD if retry is None else min(retry, RESYNC_PERIOD))
        if update is not None:
            update.join()

    def _try_to_reconstruct(self, ctx: golang.Context) -> bool:
        """Whether nothing is left to be found out."""
        with contain("Failed to reconstruct volumes", ctx):
            return self.reconstruct_volumes()
        return False

    def wake(self) -> None:
        """Reconcile now."""
        self._wake.try_send(None)

    def reconcile(self) -> None:
        """One round."""
        ready_to_unmount = self._ready_to_unmount()
        if ready_to_unmount:
            self._rename_reconstructed_volumes()
            # First, so that what one pod has given up is away before another gets it.
            self.unmount_volumes()
        self.mount_or_attach_volumes()
        if ready_to_unmount:
            # Before devices, other than in Go: one is not unmounted while an unknown pod may have it.
            self._clean_orphan_volumes()
            self.unmount_detach_devices()
        self._update_last_sync_time()
