"""Test parsing image names.

Go: pkg/util/parsers/parsers_test.go
"""

from __future__ import annotations

import pytest

from pkg.util import parsers

_DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("root", ("docker.io/library/root", "latest", "")),
        ("root:tag", ("docker.io/library/root", "tag", "")),
        (f"root@{_DIGEST}", ("docker.io/library/root", "", _DIGEST)),
        (f"root:tag@{_DIGEST}", ("docker.io/library/root", "tag", _DIGEST)),
        ("user/repo", ("docker.io/user/repo", "latest", "")),
        ("user/repo:tag", ("docker.io/user/repo", "tag", "")),
        ("url:5000/repo", ("url:5000/repo", "latest", "")),
        ("url:5000/repo:tag", ("url:5000/repo", "tag", "")),
        (f"url:5000/repo@{_DIGEST}", ("url:5000/repo", "", _DIGEST)),
        ("index.docker.io/busybox", ("docker.io/library/busybox", "latest", "")),
        ("localhost/a", ("localhost/a", "latest", "")),
        ("Reg.io/a", ("Reg.io/a", "latest", "")),
        ("[2001:db8::1]:5000/repo", ("[2001:db8::1]:5000/repo", "latest", "")),
    ],
)
def test_parse_image_name(image: str, expected: tuple[str, str, str]) -> None:
    assert parsers.parse_image_name(image) == expected


@pytest.mark.parametrize(
    ("image", "fault"),
    [
        ("ROOT", "repository name (library/ROOT) must be lowercase"),
        ("http://root", "invalid reference format"),
        ("root@latest", "invalid reference format"),
        ("root:" + "x" * 129, "invalid reference format"),
        ("", "invalid reference format"),
        ("f" * 64, "cannot specify 64-byte hexadecimal strings"),
        ("root@sha256:" + "a" * 63, "invalid checksum digest length"),
        ("root@md5:" + "a" * 32, "unsupported digest algorithm"),
        ("root@sha256:" + "A" * 64, "invalid checksum digest format"),
    ],
)
def test_bad_image_names(image: str, fault: str) -> None:
    with pytest.raises(parsers.ImageNameError) as caught:
        parsers.parse_image_name(image)
    assert str(caught.value).startswith(f'couldn\'t parse image name "{image}": ')
    assert fault in str(caught.value)


def test_long_image_names() -> None:
    domain = "d" * (parsers.MAX_IMAGE_NAME_LENGTH - len(".io/root"))
    assert parsers.parse_image_name(f"{domain}.io/root") == (f"{domain}.io/root", "latest", "")
    with pytest.raises(parsers.ImageNameError, match="has 4097 characters, must have at most 4096"):
        parsers.parse_image_name(f"{domain}d.io/root")
