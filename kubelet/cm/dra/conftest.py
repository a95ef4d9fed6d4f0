"""What tests of DRA drivers and of their manager start from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What is entered and pushed here ends with the test."""
    with ExitStack() as stack:
        yield stack
