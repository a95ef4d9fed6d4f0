"""Record the claims that are prepared on this node, or that are being prepared.

Go: pkg/kubelet/cm/dra/claiminfo.go
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily

from kubelet import container as kubecontainer
from kubelet.cm.dra import state
from pkg import klog
from pkg.api.resource import v1 as resourceapi
from pkg.apimachinery import types
from pkg.component_base import metrics

# This label replaces a driver's name in the count of all drivers' claims.
CLAIMS_IN_USE_ANY_DRIVER = "<any>"


class AllocatedDevice(NamedTuple):
    """Identify a device of an allocation."""

    request: str
    driver: str
    pool: str
    device: str
    share_id: str | None


@dataclass(slots=True)
class ClaimInfo(state.ClaimInfoState):
    """Record a claim, and whether all its drivers have prepared it since the kubelet started."""

    prepared: bool = False
    # While the drivers unprepare the claim, no other pod may use it.
    unpreparing: bool = False
    # Since the claim was prepared, a driver was asked to unprepare it, and may have done so.
    may_be_taken_back: bool = False
    # `allocated` holds the allocated devices as the API server last reported them; None if no report has arrived since
    # the start.
    allocated: frozenset[AllocatedDevice] | None = None

    def was_allocated_anew(self, now: ClaimInfo) -> bool:
        """Report whether the claim's allocation has changed since the last lookup."""
        return self.allocated is not None and self.allocated != now.allocated

    def set_devices(self, driver_name: str, devices: list[state.Device]) -> None:
        """Record the devices that the driver prepared, and drop those that it prepared earlier.

        DIVERGES (fault of Go): the devices that a driver prepared replace those that it prepared earlier.
        Go: pkg/kubelet/cm/dra/claiminfo.go, (*ClaimInfo).addDevice: it adds them to the earlier ones.
        Why: when the kubelet prepares a claim again because another driver failed, the claim would contain its devices
        twice.
        Test: manager_test.py:test_two_drivers_of_which_one_fails_at_first
        """
        self.driver_state[driver_name] = state.DriverState(devices)

    def add_pod_reference(self, pod_uid: types.UID) -> None:
        self.pod_uids.add(pod_uid)

    def has_pod_reference(self, pod_uid: types.UID) -> bool:
        return pod_uid in self.pod_uids

    def delete_pod_reference(self, pod_uid: types.UID) -> None:
        self.pod_uids.discard(pod_uid)

    def cdi_devices_as_list(self, request_name: str) -> list[kubecontainer.CDIDevice]:
        """Return the devices of a request, or of all requests if `request_name` is empty."""
        return [
            kubecontainer.CDIDevice(name=cdi_device_id)
            for driver in self.driver_state.values()
            for device in driver.devices
            if not request_name or not device.request_names or request_name in device.request_names
            for cdi_device_id in device.cdi_device_ids
        ]


def new_claim_info_from_claim(claim: resourceapi.ResourceClaim) -> ClaimInfo:
    """Return the record of a claim. Raise ValueError if the claim has no allocation."""
    if claim.status.allocation is None:
        raise ValueError("not allocated")
    results = claim.status.allocation.devices.results
    return ClaimInfo(
        claim_uid=claim.metadata.uid,
        claim_name=claim.metadata.name,
        namespace=claim.metadata.namespace,
        driver_state={result.driver: state.DriverState() for result in results},
        allocated=frozenset(AllocatedDevice(r.request, r.driver, r.pool, r.device, r.share_id) for r in results),
    )


def new_claim_info_from_state(entry: state.ClaimInfoState) -> ClaimInfo:
    return ClaimInfo(entry.claim_uid, entry.claim_name, entry.namespace, entry.pod_uids, entry.driver_state)


class ClaimInfoCache:
    """Hold the records of claims by namespace and name.

    The caller must hold the lock, except for the methods that take it themselves.
    """

    def __init__(self, state_dir: str, checkpoint_name: str) -> None:
        """Read the checkpoint, if there is one. Raise ValueError or OSError, which names the file."""
        path = Path(state_dir) / checkpoint_name
        try:
            self._checkpointer = state.Checkpointer(state_dir, checkpoint_name)
            entries = self._checkpointer.get_or_create().get_claim_info_state_list()
        except ValueError as err:
            # The drivers must unprepare the claims of the file, which is impossible without its content.
            raise ValueError(f"cannot read {path}: {err}; please drain the node and remove the DRA state file") from err
        self._claim_info = {(entry.namespace, entry.claim_name): new_claim_info_from_state(entry) for entry in entries}
        # This lock guards _claim_info and its records. It is held while the checkpoint is written, so that an older
        # checkpoint never replaces a newer one.
        self._lock = threading.Lock()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Take the lock, and afterwards log which claims began or ceased to be in use."""
        with self._lock:
            if not klog.v(5).enabled:
                yield
                return
            before = self.claims_in_use()
            try:
                yield
            finally:
                if delta := claims_in_use_delta(before, self.claims_in_use()):
                    klog.v(5).info_s("ResourceClaim usage changed", claimsInUse=delta)

    @contextmanager
    def rlock(self) -> Iterator[None]:
        """Take the lock for reading."""
        with self._lock:
            yield

    def add(self, info: ClaimInfo) -> None:
        self._claim_info[info.namespace, info.claim_name] = info

    def get(self, claim_name: str, namespace: str) -> ClaimInfo | None:
        return self._claim_info.get((namespace, claim_name))

    def delete(self, claim_name: str, namespace: str) -> None:
        self._claim_info.pop((namespace, claim_name), None)

    def values(self) -> Iterable[ClaimInfo]:
        return self._claim_info.values()

    def has_pod_reference(self, uid: types.UID) -> bool:
        """Report whether any claim is still recorded for the pod, which then cannot be terminated."""
        return any(info.has_pod_reference(uid) for info in self._claim_info.values())

    def sync_to_checkpoint(self) -> None:
        """Write the checkpoint. Raise OSError."""
        self._checkpointer.store(state.Checkpoint(self._claim_info.values()))

    def claims_in_use(self) -> dict[str, int]:
        """Return the number of prepared claims by driver; CLAIMS_IN_USE_ANY_DRIVER counts all of them."""
        prepared = [info for info in self._claim_info.values() if info.prepared]
        counts = Counter(driver for info in prepared for driver in info.driver_state)
        return {**counts, CLAIMS_IN_USE_ANY_DRIVER: len(prepared)}


def claims_in_use_delta(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """List the drivers whose number of claims changed, as "driver: number (change)"."""
    changes = [(name, after.get(name, 0), after.get(name, 0) - before.get(name, 0)) for name in before | after]
    return [f"{name}: {count} ({change:+d})" for name, count, change in sorted(changes) if change]


class ClaimInfoCollector:
    """Collect the number of prepared claims by driver, for prometheus_client.

    Drivers without claims are left out, so that a removed driver disappears.
    """

    def __init__(self, cache: ClaimInfoCache) -> None:
        self._cache = cache

    def describe(self) -> list[GaugeMetricFamily]:
        return [self._family()]

    def collect(self) -> list[GaugeMetricFamily]:
        with self._cache.rlock():
            claims_in_use = self._cache.claims_in_use()
        family = self._family()
        for driver_name, count in claims_in_use.items():
            family.add_metric([driver_name], count)
        return [family]

    def _family(self) -> GaugeMetricFamily:
        text = "The number of ResourceClaims that are currently in use on the node, by driver name"
        return GaugeMetricFamily("dra_resource_claims_in_use", metrics.annotated_help(text), labels=["driver_name"])
