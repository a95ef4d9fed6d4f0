"""Test the placeholder for an object that does not exist yet."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pkg.golang import StandIn


@dataclass
class _Part:
    """Represent a part that reads from its owner."""

    owner: _Owner

    def ask(self) -> int:
        return self.owner.figure()


@dataclass
class _Owner:
    part: _Part
    number: int

    def figure(self) -> int:
        return self.number


def test_object_answers_once_it_is_whole() -> None:
    stand_in = StandIn(_Owner)
    owner = _Owner(_Part(stand_in.cast()), 7)
    stand_in.become(owner)
    assert owner.part.ask() == 7
    owner.number = 8
    assert owner.part.ask() == 8


def test_what_is_asked_too_early_is_refused() -> None:
    part = _Part(StandIn(_Owner).cast())
    with pytest.raises(AttributeError, match="figure was read from a _Owner that is not complete"):
        part.ask()
