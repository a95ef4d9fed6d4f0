"""Read the flags for the page.

Go: k8s.io/apiserver/pkg/server/flagz/flagreader.go
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from pkg.component_base.cli import flag as cliflag


class Reader(Protocol):
    def get_flagz(self) -> dict[str, str]:
        """Return the values by flag name, with secret values hidden."""
        ...


class FlagSetReader:
    """Read the flags of a command.

    Go: NamedFlagSetsReader
    """

    def __init__(self, flag_set: cliflag.FlagSet, classified: Collection[str] = ()) -> None:
        """Prepare a reader that hides the values of the `classified` flags."""
        self._flag_set = flag_set
        self._classified = frozenset(classified)

    def get_flagz(self) -> dict[str, str]:
        return {
            flag.name: "CLASSIFIED" if flag.name in self._classified else flag.value.string() for flag in self._flag_set
        }
