"""Test the extraction of fields by path.

Go: pkg/fieldpath/fieldpath_test.go
"""

from __future__ import annotations

import pytest

from pkg import fieldpath
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1

POD = v1.Pod(
    metadata=metav1.ObjectMeta(
        name="n",
        namespace="ns",
        uid=types.UID("u"),
        labels={"b": "2", "a": 'x"\n\\'},
        annotations={"Www.k8s.io/test": "1"},
    )
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "n"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels", 'a="x\\"\\n\\\\"\nb="2"'),
        ("metadata.labels['b']", "2"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['Www.k8s.io/test']", "1"),
    ],
)
def test_extract(path: str, expected: str) -> None:
    assert fieldpath.extract_field_path_as_string(POD, path) == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("metadata.whoops", "unsupported fieldPath"),
        ("spec.nodeName", "unsupported fieldPath"),
        ("metadata.name['x']", "does not support subscript"),
        ("metadata.labels['']", "invalid key subscript"),
        ("metadata.labels['a b']", "invalid key subscript"),
        ("metadata.labels['Www.K8s/a']", "invalid key subscript"),
    ],
)
def test_extract_bad_path(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fieldpath.extract_field_path_as_string(POD, path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.annotations['key']", ("metadata.annotations", "key")),
        ("metadata.annotations['a[b]c']", ("metadata.annotations", "a[b]c")),
        ("metadata.labels['']", ("metadata.labels", "")),
        ("metadata.labels", None),
        ("['x']", None),
        ("a[']", None),
    ],
)
def test_split(path: str, expected: tuple[str, str] | None) -> None:
    assert fieldpath.split_maybe_subscripted_path(path) == expected
