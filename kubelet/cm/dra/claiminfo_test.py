"""Test the record of a claim. The manager's tests cover the cache.

Go: pkg/kubelet/cm/dra/claiminfo_test.go
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from kubelet.cm.dra import state
from kubelet.cm.dra.claiminfo import ClaimInfo, ClaimInfoCache, claims_in_use_delta
from pkg import klog


@pytest.mark.parametrize(
    ("before", "after", "delta"),
    [
        ({}, {}, []),
        ({"a": 1}, {"a": 1}, []),
        ({}, {"a": 2}, ["a: 2 (+2)"]),
        ({"a": 2}, {}, ["a: 0 (-2)"]),
        ({"b": 1, "a": 3}, {"a": 1, "b": 4}, ["a: 1 (-2)", "b: 4 (+3)"]),
    ],
    ids=["nothing", "same", "new", "gone", "several"],
)
def test_claims_in_use_delta(before: dict[str, int], after: dict[str, int], delta: list[str]) -> None:
    assert claims_in_use_delta(before, after) == delta


def new_cache(directory: Path) -> ClaimInfoCache:
    return ClaimInfoCache(str(directory), "checkpoint")


def test_claims_come_back_from_disk_unprepared(tmp_path: Path) -> None:
    cache = new_cache(tmp_path)
    devices = [state.Device("pool", "device", "share", ("request",), ("vendor.com/class=name",))]
    drivers = {"driver": state.DriverState(devices), "other": state.DriverState()}
    info = ClaimInfo("uid", "claim", "ns", {"pod"}, drivers, prepared=True)
    with cache.lock():
        cache.add(info)
        cache.sync_to_checkpoint()
    found = new_cache(tmp_path).get("claim", "ns")
    assert found == ClaimInfo("uid", "claim", "ns", {"pod"}, drivers, prepared=False)
    assert new_cache(tmp_path).get("claim", "other") is None


def test_changes_of_use_are_logged(tmp_path: Path, log: io.StringIO) -> None:
    cache = new_cache(tmp_path)
    klog.set_verbosity(5)
    try:
        with cache.lock():
            cache.add(ClaimInfo("uid", "claim", "ns", driver_state={"driver": state.DriverState()}, prepared=True))
        with cache.lock():
            cache.add(ClaimInfo("uid2", "claim2", "ns", driver_state={"driver": state.DriverState()}))
        with cache.lock():
            cache.delete("claim", "ns")
    finally:
        klog.set_verbosity(0)
    said = [line.partition("claimsInUse=")[2] for line in log.getvalue().splitlines() if "claimsInUse" in line]
    assert said == ['["<any>: 1 (+1)","driver: 1 (+1)"]', '["<any>: 0 (-1)","driver: 0 (-1)"]']
