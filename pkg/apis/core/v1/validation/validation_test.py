"""Test the validation of log options.

Go: pkg/apis/core/v1/validation/validation_test.go, TestValidatePodLogOptions
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pkg.api.core import v1
from pkg.apis.core.v1 import validation

_NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "errors"),
    [
        ({}, []),
        ({"previous": True, "follow": True, "timestamps": True}, []),
        ({"tail_lines": 0}, []),
        ({"tail_lines": 2**63 - 1}, []),
        ({"tail_lines": -2}, ["tailLines: Invalid value: -2: must be greater than or equal to 0"]),
        ({"limit_bytes": 2**63 - 1}, []),
        ({"limit_bytes": 0}, ["limitBytes: Invalid value: 0: must be greater than 0"]),
        ({"limit_bytes": -2}, ["limitBytes: Invalid value: -2: must be greater than 0"]),
        ({"since_time": _NOW}, []),
        ({"since_seconds": 1}, []),
        ({"since_seconds": 0}, ["sinceSeconds: Invalid value: 0: must be greater than 0"]),
        (
            {"since_seconds": 1, "since_time": _NOW},
            [": Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"],
        ),
        ({"stream": "All", "tail_lines": 10}, []),
        ({"stream": "Stderr"}, []),
        (
            {"stream": "Stdout", "tail_lines": 10},
            [": Forbidden: `tailLines` and specific `stream` are mutually exclusive for now"],
        ),
        ({"stream": "stdout"}, ['stream: Unsupported value: "stdout": supported values: "Stdout", "Stderr", "All"']),
    ],
)
def test_validate_pod_log_options(options: dict[str, Any], errors: list[str]) -> None:
    assert [str(err) for err in validation.validate_pod_log_options(v1.PodLogOptions(**options))] == errors
