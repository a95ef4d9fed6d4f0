"""Test the store of devices' health.

Go: pkg/kubelet/cm/dra/healthinfo_test.go
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
from pathlib import Path

import pytest

from kubelet.cm.dra import healthinfo, state
from kubelet.cm.dra.healthinfo import HealthInfoCache
from pkg.apimachinery.clock.testing import FakeClock

GO_FILE = Path(__file__).parent / "testdata" / "health_of_two_drivers.json"
HEALTHY, UNHEALTHY, UNKNOWN = state.DeviceHealthStatus
NOW = datetime.datetime(2026, 11, 21, 19, 49, 40, tzinfo=datetime.UTC)


def device(
    name: str, health: state.DeviceHealthStatus = HEALTHY, timeout: float = 30, message: str = ""
) -> state.DeviceHealth:
    return state.DeviceHealth("pool", name, health, None, timeout, message)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def cache(tmp_path: Path, clock: FakeClock) -> HealthInfoCache:
    return HealthInfoCache(str(tmp_path / "dra_health_state"), clock)


def how(cache: HealthInfoCache, name: str, driver: str = "driver") -> tuple[str, str]:
    found = cache.get_health_info(driver, "pool", name)
    assert (found.pool_name, found.device_name) == ("pool", name)
    return found.health.value, found.message


def names(devices: list[state.DeviceHealth]) -> list[tuple[str, str]]:
    return [(each.device_name, each.health.value) for each in devices]


def test_reads_what_go_wrote(clock: FakeClock) -> None:
    cache = HealthInfoCache(str(GO_FILE), clock)
    found = [
        (found.health.value, found.message, found.health_check_timeout)
        for driver, name in (("gpu", "gpu-0"), ("gpu", "gpu-1"), ("gpu", "gpu-2"), ("nic", "nic-0"))
        for found in [cache.get_health_info(f"{driver}.example.com", "four", name)]
    ]
    assert found == [
        ("Healthy", "", 30),
        ("Unhealthy", "temperature 105 <C>", 30),
        ("Healthy", "", 600),
        ("Healthy", "", 30),
    ]


def test_writes_what_go_reads(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "dra_health_state"
    path.write_bytes(GO_FILE.read_bytes())
    cache = HealthInfoCache(str(path), clock)
    cache.update_health_info("new", [dataclasses.replace(device("d"), pool_name="four")])
    written, expected = json.loads(path.read_text()), json.loads(GO_FILE.read_text())
    assert written.pop("new")["Devices"]["four/d"]["LastUpdated"] == "2026-11-21T19:49:40Z"
    for devices in expected.values():
        for each in devices["Devices"].values():
            each["LastUpdated"] = each["LastUpdated"][:-4] + "Z"  # Python has no nanoseconds.
    assert written == expected
    assert "\\u003cC\\u003e" in path.read_text()


def _one_device(**fields: object) -> str:
    told = {"PoolName": "p", "DeviceName": "x", "Health": "Healthy", "LastUpdated": "2026-01-01T00:00:00Z", **fields}
    return json.dumps({"d": {"Devices": {"p/x": told}}})


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "3",
        '{"d":1}',
        '{"d":{"Devices":{"p/x":{"PoolName":"p"}}}}',
        pytest.param("[" * 100_000, id="deep"),
        pytest.param(_one_device(HealthCheckTimeout=10**400), id="long-time"),
        pytest.param(_one_device(LastUpdated="0001-01-01T00:00:00+23:00"), id="before-all-time"),
        pytest.param(_one_device(LastUpdated="9999-12-31T23:59:59-23:00"), id="after-all-time"),
    ],
)
def test_file_that_cannot_be_read_is_passed_over(
    tmp_path: Path, clock: FakeClock, log: io.StringIO, content: str
) -> None:
    path = tmp_path / "dra_health_state"
    path.write_text(content)
    cache = HealthInfoCache(str(path), clock)
    assert "Failed to load health checkpoint, proceeding with empty cache" in log.getvalue()
    assert names(cache.update_health_info("driver", [device("a")])) == [("a", "Healthy")]
    assert how(HealthInfoCache(str(path), clock), "a") == ("Healthy", "")


def test_without_a_file(clock: FakeClock) -> None:
    cache = HealthInfoCache("", clock)
    cache.update_health_info("driver", [device("a")])
    assert how(cache, "a") == ("Healthy", "")


def test_health_holds_for_its_time(cache: HealthInfoCache, clock: FakeClock) -> None:
    cache.update_health_info(
        "driver", [device("a", message="fine"), device("b", UNHEALTHY, 60), device("c", timeout=0)]
    )
    assert [how(cache, name) for name in "abcd"] == [
        ("Healthy", "fine"),
        ("Unhealthy", ""),
        ("Healthy", ""),
        ("Unknown", ""),
    ]
    assert how(cache, "a", "other") == ("Unknown", "")
    clock.step(30)
    assert how(cache, "a") == ("Healthy", "fine")
    clock.step(1)
    assert [how(cache, name) for name in "abc"] == [("Unknown", ""), ("Unhealthy", ""), ("Unknown", "")]


def test_health_ends_in_time_when_the_clock_is_set_back(
    tmp_path: Path, cache: HealthInfoCache, clock: FakeClock
) -> None:
    cache.update_health_info("driver", [device("a")])
    clock.shift(-3600)
    clock.step(20)
    cache.update_health_info("driver", [device("b")])
    restarted = HealthInfoCache(str(tmp_path / "dra_health_state"), clock)
    assert [how(each, "b") for each in (cache, restarted)] == [("Healthy", "")] * 2
    clock.step(11)
    for each in (cache, restarted):
        assert [how(each, name) for name in "ab"] == [("Unknown", ""), ("Healthy", "")]


def test_what_is_new_is_told(cache: HealthInfoCache, clock: FakeClock) -> None:
    def update(*devices: state.DeviceHealth) -> list[tuple[str, str]]:
        return names(cache.update_health_info("driver", devices))

    assert update(device("a"), device("b")) == [("a", "Healthy"), ("b", "Healthy")]
    assert update(device("a"), device("b")) == []
    assert update(device("a", UNHEALTHY), device("b")) == [("a", "Unhealthy")]
    assert update(device("a", UNHEALTHY, message="hot"), device("b", timeout=60)) == [
        ("a", "Unhealthy"),
        ("b", "Healthy"),
    ]
    clock.step(45)
    # The report lacks a device, whose health becomes unknown when its last report expires.
    assert update(device("c")) == [("c", "Healthy"), ("a", "Unknown")]
    assert update(device("c")) == []
    clock.step(30)
    assert update(device("c")) == [("b", "Unknown")]
    assert how(cache, "c") == ("Healthy", "")


def test_driver_is_forgotten(cache: HealthInfoCache, tmp_path: Path, clock: FakeClock) -> None:
    cache.update_health_info("driver", [device("a")])
    cache.update_health_info("other", [device("a")])
    cache.clear_driver("driver")
    cache.clear_driver("driver")
    again = HealthInfoCache(str(tmp_path / "dra_health_state"), clock)
    assert [how(each, "a", name)[0] for each in (cache, again) for name in ("driver", "other")] == [
        "Unknown",
        "Healthy",
    ] * 2


def test_file_that_cannot_be_written(cache: HealthInfoCache, tmp_path: Path, log: io.StringIO) -> None:
    (tmp_path / "dra_health_state").mkdir()
    cache.update_health_info("driver", [device("a")])
    assert how(cache, "a") == ("Healthy", "")
    assert "Failed to save health checkpoint after update." in log.getvalue()


def test_devices_that_were_told_of_longest_ago_are_forgotten(
    cache: HealthInfoCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(healthinfo, "MAX_DEVICES", 3)
    cache.update_health_info("driver", [device("a"), device("b"), device("c")])
    cache.update_health_info("driver", [device("a")])
    changed = cache.update_health_info("driver", [device("d")])
    assert sorted(each.device_name for each in changed) == ["b", "d"]
    assert [how(cache, name)[0] for name in "abcd"] == ["Healthy", "Unknown", "Healthy", "Healthy"]


def test_a_driver_with_ever_new_devices(cache: HealthInfoCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healthinfo, "MAX_DEVICES", 10)
    for number in range(50):
        cache.update_health_info("driver", [device(f"d-{number}")])
    assert sum(how(cache, f"d-{number}")[0] == "Healthy" for number in range(50)) == 10
