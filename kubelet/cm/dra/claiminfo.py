"""The claims that are prepared on this node, or about to be.

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

# In place of a driver's name: the claims of any.
CLAIMS_IN_USE_ANY_DRIVER = "<any>"


class AllocatedDevice(NamedTuple):
    """What tells apart the devices of an allocation."""

    request: str
    driver: str
    pool: str
    device: str
    share_id: str | None


@dataclass(slots=True)
class ClaimInfo(state.ClaimInfoState):
    """A claim, and whether all its drivers have prepared it since the kubelet started."""

    prepared: bool = False
    # Its drivers are being asked to give it up, so that no further pod may count on it.
    unpreparing: bool = False
    # A driver has been asked to give it up since it was prepared, and may have done so.
    may_be_taken_back: bool = False
    # The devices that it was allocated, by what the API server has last told; None if that was before the start.
    allocated: frozenset[AllocatedDevice] | None = None

    def was_allocated_anew(self, now: ClaimInfo) -> bool:
        """Whether the claim has been allocated other devices since it was last looked up."""
        return self.allocated is not None and self.allocated != now.allocated

    def set_devices(self, driver_name: str, devices: list[state.Device]) -> None:
        """What the driver has prepared, in place of what it had before.

        DIVERGES (fault of Go): devices that a driver has prepared take the place of those that it prepared before.
        Go: pkg/kubelet/cm/dra/claiminfo.go, (*ClaimInfo).addDevice: adds them to those.
        Why: if preparing is tried again because another driver failed, the claim would have its devices twice.
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
        """The devices of a request, or of all if that is empty."""
        return [
            kubecontainer.CDIDevice(name=cdi_device_id)
            for driver in self.driver_state.values()
            for device in driver.devices
            if not request_name or not device.request_names or request_name in device.request_names
            for cdi_device_id in device.cdi_device_ids
        ]


def new_claim_info_from_claim(claim: resourceapi.ResourceClaim) -> ClaimInfo:
    """Raises ValueError for a claim that was not allocated anything."""
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
    """Claims by namespace and name. Its methods need the lock, except where they say that they take it."""

    def __init__(self, state_dir: str, checkpoint_name: str) -> None:
        """Filled from the checkpoint, if there is one. Raises ValueError or OSError, naming the file."""
        path = Path(state_dir) / checkpoint_name
        try:
            self._checkpointer = state.Checkpointer(state_dir, checkpoint_name)
            entries = self._checkpointer.get_or_create().get_claim_info_state_list()
        except ValueError as err:
            # What stands in the file must be given back to its drivers, which nobody could do without it.
            raise ValueError(f"cannot read {path}: {err}; please drain the node and remove the DRA state file") from err
        self._claim_info = {(entry.namespace, entry.claim_name): new_claim_info_from_state(entry) for entry in entries}
        # Guards _claim_info and the infos in it; the checkpoint is written while it is held, so that none is older.
        self._lock = threading.Lock()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Takes the lock, and logs which claims come into use and go out of it."""
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
        """Takes the lock to read."""
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
        """Whether some claim is still there for the pod, which then cannot be over."""
        return any(info.has_pod_reference(uid) for info in self._claim_info.values())

    def sync_to_checkpoint(self) -> None:
        """Raises OSError."""
        self._checkpointer.store(state.Checkpoint(self._claim_info.values()))

    def claims_in_use(self) -> dict[str, int]:
        """How many claims each driver has prepared, and under CLAIMS_IN_USE_ANY_DRIVER how many there are."""
        prepared = [info for info in self._claim_info.values() if info.prepared]
        counts = Counter(driver for info in prepared for driver in info.driver_state)
        return {**counts, CLAIMS_IN_USE_ANY_DRIVER: len(prepared)}


def claims_in_use_delta(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """The drivers whose number of claims is another now, as "driver: number (change)"."""
    changes = [(name, after.get(name, 0), after.get(name, 0) - before.get(name, 0)) for name in before | after]
    return [f"{name}: {count} ({change:+d})" for name, count, change in sorted(changes) if change]


class ClaimInfoCollector:
    """A collector of prometheus_client: how many claims are prepared, by driver.

    Drivers without claims are not shown, so that one that was removed does not stay for ever.
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
