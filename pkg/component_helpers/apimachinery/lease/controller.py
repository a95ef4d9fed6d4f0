"""Create a lease, and renew it.

Go: k8s.io/component-helpers/apimachinery/lease/controller.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.coordination import v1 as coordinationv1
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import wait

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

# `MAX_UPDATE_RETRIES` is the number of attempts for one renewal.
MAX_UPDATE_RETRIES = 5
# `MAX_BACKOFF` is the maximum delay, in seconds, between attempts to get or create the lease.
MAX_BACKOFF = 7.0
RENEW_JITTER = 0.04

# The function completes a lease in place before it is sent. If it raises, the lease is neither created nor renewed.
ProcessLeaseFunc = Callable[[coordinationv1.Lease], None]


class LeaseUpdateError(Exception):
    """Signal that several attempts to renew the lease failed."""


@dataclass(frozen=True, slots=True)
class EnsuredLease:
    """Hold the existing lease."""

    # `lease` is None if the lease could not be prepared; the next round tries again.
    lease: coordinationv1.Lease | None
    # `created` is True if the lease was created just now.
    created: bool = False


class Controller:
    """Keep one lease renewed; only run's thread may use the controller.

    Go's Start and Stop, which delete the lease at the beginning and at the end, are for components other than the
    kubelet.
    """

    def __init__(
        self,
        clock: clocklib.Clock,
        client: kubernetes.Interface | None,
        holder_identity: str,
        lease_duration_seconds: int,
        on_repeated_heartbeat_failure: Callable[[], None] | None,
        renew_interval: float,
        lease_name: str,
        lease_namespace: str,
        new_lease_post_process_func: ProcessLeaseFunc | None,
    ) -> None:
        """Prepare a controller, which does nothing without a client; renew_interval is in seconds."""
        self._clock = clock
        self._lease_client = client.coordination_v1.leases(lease_namespace) if client is not None else None
        self._holder_identity = holder_identity
        self._lease_duration_seconds = lease_duration_seconds
        self._on_repeated_heartbeat_failure = on_repeated_heartbeat_failure
        self._renew_interval = renew_interval
        self._lease_name = lease_name
        self._lease_namespace = lease_namespace
        self._new_lease_post_process_func = new_lease_post_process_func
        # This is the lease as it was last created or renewed.
        self.latest_lease: coordinationv1.Lease | None = None

    def run(self, ctx: golang.Context) -> None:
        """Renew the lease until ctx ends."""
        if self._lease_client is None:
            klog.info_s("lease controller has nil lease client, will not claim or renew leases")
            return
        wait.jitter_until(lambda: self.sync(ctx), self._renew_interval, RENEW_JITTER, True, ctx, self._clock)

    def sync(self, ctx: golang.Context) -> None:
        """Renew the lease once, and create it first if necessary."""
        if self.latest_lease is not None:
            # Hardly anything else writes the lease, so it is not read before the update.
            try:
                self.retry_update_lease(ctx, self.latest_lease)
                return
            except golang.ContextError:
                raise
            except Exception as err:
                # The lease may have been deleted, or changed by another client, so read it again.
                klog.info_s("failed to update lease using latest lease, fallback to ensure lease", err=err)
        ensured = self.backoff_ensure_lease(ctx)
        self.latest_lease = lease = ensured.lease
        if ensured.created or lease is None:
            return
        try:
            self.retry_update_lease(ctx, lease)
        except golang.ContextError:
            raise
        except Exception as err:
            # Whatever failed, the next round renews the lease.
            klog.error_s(err, "Will retry updating lease", interval=self._renew_interval)

    def backoff_ensure_lease(self, ctx: golang.Context) -> EnsuredLease:
        """Repeat ensure_lease until it succeeds; raise ctx.err() once ctx is done."""
        pause = 0.1
        while True:
            try:
                return self.ensure_lease(ctx)
            except golang.ContextError:
                raise
            except Exception as err:
                # Without its lease the node counts as dead, so any error leads to another attempt.
                pause = min(2 * pause, MAX_BACKOFF)
                klog.error_s(err, "Failed to ensure lease exists, will retry", interval=pause)
            wait.pause(ctx, pause, self._clock)

    def ensure_lease(self, ctx: golang.Context) -> EnsuredLease:
        """Get the lease, or create it if it does not exist; raise the API server's errors."""
        assert self._lease_client is not None
        try:
            return EnsuredLease(self._lease_client.get(ctx, self._lease_name))
        except apierrors.StatusError as err:
            if not apierrors.is_not_found(err):
                raise
        lease, failure = self.new_lease(None)
        if failure is not None:
            return EnsuredLease(None)
        return EnsuredLease(self._lease_client.create(ctx, lease), created=True)

    def retry_update_lease(self, ctx: golang.Context, base: coordinationv1.Lease | None) -> None:
        """Renew `base`; raise LeaseUpdateError after several attempts, and ctx.err() once ctx is done."""
        assert self._lease_client is not None
        last: Exception | None = None
        for attempt in range(MAX_UPDATE_RETRIES):
            lease, last = self.new_lease(base)
            if last is not None:
                klog.error_s(last, "Failed to prepare lease")
            else:
                try:
                    self.latest_lease = self._lease_client.update(ctx, lease)
                    return
                except golang.ContextError:
                    raise
                except Exception as err:
                    # A later attempt may succeed after any error; the last error is raised at the end.
                    klog.error_s(err, "Failed to update lease")
                    last = err
                    if apierrors.is_conflict(err):
                        base = self.backoff_ensure_lease(ctx).lease
                        continue
            if attempt > 0 and self._on_repeated_heartbeat_failure is not None:
                self._on_repeated_heartbeat_failure()
        raise LeaseUpdateError(f"failed {MAX_UPDATE_RETRIES} attempts to update lease") from last

    def new_lease(self, base: coordinationv1.Lease | None) -> tuple[coordinationv1.Lease, Exception | None]:
        """Return a renewed copy of `base`, or a new lease, and the error if it could not be completed."""
        if base is None:
            lease = coordinationv1.Lease(
                metadata=metav1.ObjectMeta(name=self._lease_name, namespace=self._lease_namespace),
                spec=coordinationv1.LeaseSpec(holder_identity=self._holder_identity),
            )
        else:
            lease = metav1.deepcopy(base)
        # The configuration may have changed since the lease was created.
        lease.spec.lease_duration_seconds = self._lease_duration_seconds
        lease.spec.renew_time = metav1.micro_time(self._clock.now())
        if self._new_lease_post_process_func is not None:
            try:
                self._new_lease_post_process_func(lease)
            except golang.ContextError:
                raise
            except Exception as err:
                # The error was logged where it occurred, and counts as a failed attempt.
                return lease, err
        return lease, None
