"""Where the page has the flags from.

Go: k8s.io/apiserver/pkg/server/flagz/flagreader.go
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pkg.component_base.cli import flag as cliflag


class Reader(Protocol):
    def get_flagz(self) -> dict[str, str]:
        """Values by the flags' names, secret ones hidden."""
        ...


class FlagSetReader:
    """The flags of a command. Go: NamedFlagSetsReader"""

    def __init__(self, flag_set: cliflag.FlagSet, classified: Collection[str] = ()) -> None:
        """`classified`: names of flags whose values nobody is to see."""
        self._flag_set = flag_set
        self._classified = frozenset(classified)

    def get_flagz(self) -> dict[str, str]:
        return {
            flag.name: "CLASSIFIED" if flag.name in self._classified else flag.value.string() for flag in self._flag_set
        }
