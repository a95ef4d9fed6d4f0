"""Provide fixtures for the tests of several packages."""

from __future__ import annotations

import pytest

from pkg.golang.net.testing import Resolver


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """Replace the machine's resolver."""
    return Resolver(monkeypatch)
