"""Define fixtures for the tests of DRA drivers and of their manager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Close the stack's contexts at the end of the test."""
    with ExitStack() as stack:
        yield stack
