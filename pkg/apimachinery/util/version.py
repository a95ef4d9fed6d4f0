"""Parse and compare version numbers.

Go: k8s.io/apimachinery/pkg/util/version
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import total_ordering
from itertools import zip_longest
from typing import Any

from pkg import klog
from pkg.golang import strconv

# The repetitions are possessive, because backtracking over a long text would take hundreds of bytes of memory for each
# part. Each has a look-ahead because, before Python 3.11.5, a possessive repetition whose last round fails keeps what
# that round has matched.
_VERSION = re.compile(r"\s*v?([0-9]+(?:(?=\.[0-9])\.[0-9]++)*+)(.*)", re.ASCII | re.DOTALL)
_PARTS = r"[0-9A-Za-z-]+(?:(?=\.[0-9A-Za-z-])\.[0-9A-Za-z-]++)*+"
_EXTRA = re.compile(rf"(?:-({_PARTS}))?(?:\+({_PARTS}))?\s*", re.ASCII)


@total_ordering
@dataclass(slots=True, frozen=True, eq=False)
class Version:
    """Represent an ordered version number.

    Missing components are 0. Pre-releases are compared only between two semantic versions.
    """

    components: tuple[int, ...]
    semver: bool = False
    pre_release: str = ""
    build_metadata: str = ""

    @property
    def major(self) -> int:
        return self.components[0]

    @property
    def minor(self) -> int:
        return self.components[1]

    @property
    def patch(self) -> int:
        return self.components[2] if len(self.components) > 2 else 0

    def compare(self, other: str) -> int:
        """Return -1, 0 or 1 if this version is lower than, equal to or higher than the other.

        The other version is parsed as the same kind, semantic or generic. Raise ValueError if it is invalid.
        """
        return self._compare(_parse(other, semver=self.semver))

    def _compare(self, other: Version) -> int:
        for mine, theirs in zip_longest(self.components, other.components, fillvalue=0):
            if mine != theirs:
                return 1 if mine > theirs else -1
        if not (self.semver and other.semver):
            return 0
        return _compare_pre_release(self.pre_release, other.pre_release)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._compare(other) == 0

    def __lt__(self, other: Version) -> bool:
        return self._compare(other) < 0

    def __hash__(self) -> int:
        return hash((self.major, self.minor, self.patch))

    def __str__(self) -> str:
        text = ".".join(map(str, self.components))
        if self.pre_release:
            text += "-" + self.pre_release
        return f"{text}+{self.build_metadata}" if self.build_metadata else text


def parse_generic(text: str) -> Version:
    """Parse two or more numbers, and ignore the text after them; raise ValueError on failure."""
    return _parse(text, semver=False)


def parse_semantic(text: str) -> Version:
    """Parse a semantic version, with or without a leading v; raise ValueError on failure."""
    return _parse(text, semver=True)


def parse(text: str) -> Version:
    """Parse a semantic version, or else a generic one; raise ValueError on failure."""
    try:
        return parse_semantic(text)
    except ValueError:
        return parse_generic(text)


def highest_supported_version(versions: Sequence[str]) -> Version:
    """Return the highest version whose major number is 1, ignoring invalid versions.

    Raise ValueError if there is none.
    """
    if not versions:
        raise ValueError("empty array for supported versions")
    parsed: list[Version] = []
    failure: ValueError | None = None
    for text in reversed(versions):
        try:
            parsed.append(parse_generic(text))
        except ValueError as err:
            failure = err
    highest = max((version for version in parsed if version.major <= 1), default=None)
    if highest is None:
        listed = " ".join(versions)
        why = failure if failure is not None else "<nil>"
        raise ValueError(f"could not find a highest supported version from versions ([{listed}]) reported: {why}")
    if highest.major != 1:
        raise ValueError(f"highest supported version reported is {highest}, must be v1.x")
    return highest


def _parse(text: str, *, semver: bool) -> Version:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError(f"could not parse {klog.quote(text)} as version")
    numbers = match[1].split(".")
    if len(numbers) != 3 if semver else len(numbers) < 2:
        raise ValueError(f"illegal version string {klog.quote(text)}")
    for i, number in enumerate(numbers):
        if i == 0 or semver:
            _refuse_zero_prefix(number, text)
    pre_release, metadata = _parse_extra(match[2], text) if semver else ("", "")
    return Version(tuple(map(strconv.parse_uint, numbers)), semver, pre_release, metadata)


def _parse_extra(extra: str, text: str) -> tuple[str, str]:
    match = _EXTRA.fullmatch(extra)
    if match is None:
        raise ValueError(f"could not parse pre-release/metadata ({extra}) in version {klog.quote(text)}")
    for part in (match[1] or "").split("."):
        if part.isdecimal():
            _refuse_zero_prefix(part, text)
    return match[1] or "", match[2] or ""


def _refuse_zero_prefix(number: str, text: str) -> None:
    if number.startswith("0") and number != "0":
        raise ValueError(f"illegal zero-prefixed version component {klog.quote(number)} in {klog.quote(text)}")


def _compare_pre_release(mine: str, theirs: str) -> int:
    """Compare pre-releases: a release is higher than its pre-releases, and numeric parts are compared as numbers."""
    if mine == theirs:
        return 0
    if not mine or not theirs:
        return 1 if not mine else -1
    mine_parts, their_parts = mine.split("."), theirs.split(".")
    for a, b in zip(mine_parts, their_parts, strict=False):
        keys = [_number_or_text(part) for part in (a, b)]
        if type(keys[0]) is not type(keys[1]):
            keys = [a, b]
        if keys[0] != keys[1]:
            return 1 if keys[0] > keys[1] else -1
    return (len(mine_parts) > len(their_parts)) - (len(mine_parts) < len(their_parts))


def _number_or_text(part: str) -> Any:
    try:
        return strconv.parse_uint(part)
    except strconv.NumError:
        return part
