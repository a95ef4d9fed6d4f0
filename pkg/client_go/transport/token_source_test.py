"""Test tokens in files."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from pkg.apimachinery.clock import testing as clocktesting
from pkg.client_go import transport


def test_read_again_after_a_minute(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" a\n")
    clock = clocktesting.FakeClock(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    source = transport.CachingTokenSource(str(file), clock=clock)
    assert source.token() == "a"
    file.write_text("b")
    clock.step(59)
    assert source.token() == "a"
    clock.step(2)
    assert source.token() == "b"
    file.unlink()
    clock.step(61)
    assert source.token() == "b"


def test_no_token_at_all(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(FileNotFoundError, match="token"):
        transport.CachingTokenSource(str(file)).token()
    file.write_text("\n")
    with pytest.raises(ValueError, match="read empty token from file"):
        transport.CachingTokenSource(str(file)).token()
    file.unlink()
    assert transport.CachingTokenSource(str(file), "configured").token() == "configured"
