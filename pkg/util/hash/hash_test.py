"""Test hashes of whole objects."""

from __future__ import annotations

import pytest

from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.util import hash


# These values are from the reference tables of the Go standard library's hash/fnv.
@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ("", "6c62272e07bb014262b821756295c58d"),
        ("a", "d228cb696f1a8caf78912b704e4a8964"),
        ("ab", "08809544bbab1be95aa0733055b69a62"),
        ("abc", "a68d622cec8b5822836dbc7977af7f3b"),
    ],
)
def test_fnv128a(data: str, wanted: str) -> None:
    hasher = hash.FNV128a()
    hasher.write(data.encode())
    assert hasher.sum().hex() == wanted


@pytest.mark.parametrize(
    ("data", "wanted"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("ab", 0x4D2505CA), ("abc", 0x1A47E90B)]
)
def test_fnv32a(data: str, wanted: int) -> None:
    assert hash.fnv32a(data.encode()) == wanted


def _hash(pod: v1.Pod) -> bytes:
    hasher = hash.FNV128a()
    hasher.write(b"left over")
    hash.deep_hash_object(hasher, pod)
    return hasher.sum()


def test_deep_hash_object() -> None:
    def pod(**labels: str) -> v1.Pod:
        return v1.Pod(metadata=metav1.ObjectMeta(name="a", labels=labels))

    assert _hash(pod(a="1", b="2")) == _hash(pod(b="2", a="1"))
    assert _hash(pod(a="1")) != _hash(pod(a="2"))


def test_deep_hash_object_is_of_json() -> None:
    hasher = hash.FNV128a()
    hasher.write(b'{"metadata":{"name":"a"},"spec":{"containers":[]},"status":{}}')
    assert _hash(v1.Pod(metadata=metav1.ObjectMeta(name="a"))) == hasher.sum()
