"""Test the reading of logs with the options of the API.

Go: k8s.io/cri-client/pkg/logs/logs_test.go
"""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kubelet.cri import testing as critesting
from kubelet.kuberuntime.kuberuntime_logs import LogMethods
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.clock import testing as testingclock

_NOW = datetime(2026, 1, 2, 3, 4, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "one two three "),
        ({"tail_lines": 2}, "two three "),
        ({"limit_bytes": 6}, "one tw"),
        ({"since_seconds": 20}, "two three "),
        ({"since_time": _NOW - timedelta(seconds=10)}, "three "),
        # The later of the two times counts.
        ({"since_seconds": 10, "since_time": _NOW - timedelta(seconds=20)}, "three "),
        ({"since_seconds": 20, "since_time": _NOW - timedelta(seconds=10)}, "three "),
        # These values are absurd but valid.
        ({"tail_lines": 2**63 - 1, "limit_bytes": 2**63 - 1, "since_seconds": 2**63 - 1}, "one two three "),
        ({"since_time": datetime(1, 1, 1, tzinfo=UTC)}, "one two three "),
        ({"since_time": datetime(9999, 12, 31, tzinfo=UTC)}, ""),
    ],
)
def test_options_of_the_api(tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    log = tmp_path / "0.log"
    log.write_text(
        "".join(f"2026-01-02T03:04:{s}Z stdout P {t} \n" for s, t in [("05.0", "one"), (10, "two"), (20, "three")])
    )
    runtime = critesting.FakeRuntimeService()
    logs = LogMethods(runtime_service=runtime, read_rotated_logs=False, clock=testingclock.FakeClock(_NOW))
    out = io.BytesIO()
    logs.read_logs(golang.background(), str(log), "", v1.PodLogOptions(**options), out, out)
    assert out.getvalue().decode() == expected
