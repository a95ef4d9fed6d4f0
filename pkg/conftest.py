"""What tests of several packages start from."""

from __future__ import annotations

import pytest

from pkg.golang.net.testing import Resolver


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """In place of the machine's resolver."""
    return Resolver(monkeypatch)
