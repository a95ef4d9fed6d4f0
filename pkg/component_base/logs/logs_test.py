"""Test how the log verbosity is changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pkg import klog
from pkg.component_base.logs import logs


@pytest.fixture(autouse=True)
def _verbosity() -> Iterator[None]:
    before = klog._Settings.verbosity
    yield
    klog.set_verbosity(before)


def test_glog_setter() -> None:
    assert logs.glog_setter("7") == "successfully set klog.logging.verbosity to 7"
    assert klog.v(7).enabled and not klog.v(8).enabled


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", " 1", "٣", "2147483648", "9" * 100])
def test_wrong_values(value: str) -> None:
    klog.set_verbosity(1)
    with pytest.raises(ValueError, match=r"strconv\.ParseUint"):
        logs.glog_setter(value)
    assert not klog.v(2).enabled
