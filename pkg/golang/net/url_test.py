"""Test URLs from outside."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from pkg.golang import net

# urlsplit would sort these marks one by one.
MARKS = "\u0301" * 600 + "\u0316" * 600


@pytest.mark.parametrize("url", [f"http://{MARKS}/", f"//{MARKS}", f"http:/\t/user@{MARKS}:80?q", f"x{MARKS}//{MARKS}"])
def test_host_of_very_many_marks_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="characters is too long"):
        net.split(url)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://bücher.example:80/", "bücher.example"),
        (f"http://{'a' * 2000}/", "a" * 2000),
        (f"http://a/{MARKS}?{MARKS}", "a"),
        (f"/{MARKS}", None),
        ("", None),
    ],
)
def test_others_are_split(url: str, host: str | None) -> None:
    assert net.split(url).hostname == host


def test_nothing_is_kept() -> None:
    """Nothing of a URL stays in memory, because a pod may probe many URLs of 1 MiB."""
    url = f"http://a/{'x' * 10_000}/y"
    urlsplit.cache_clear()  # type: ignore[attr-defined]

    assert net.split(url).path == url.removeprefix("http://a")
    assert urlsplit.cache_info().currsize == 0  # type: ignore[attr-defined]

    assert net.join(url, "z?q") == url.removesuffix("y") + "z?q"
    assert urlsplit.cache_info().currsize == 0  # type: ignore[attr-defined]
