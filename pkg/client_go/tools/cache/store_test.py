"""Test stores: keys, indices and notifications of changes."""

from __future__ import annotations

from typing import Any

import pytest

from pkg.api.core import v1
from pkg.apimachinery import labels, types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.tools import cache


def pod(name: str, namespace: str = "", uid: str = "", **pod_labels: str) -> v1.Pod:
    return v1.Pod(metadata=metav1.ObjectMeta(name=name, namespace=namespace, uid=types.UID(uid), labels=pod_labels))


@pytest.mark.parametrize(
    ("obj", "key"),
    [
        (pod("a"), "a"),
        (pod("a", "ns"), "ns/a"),
        (cache.ExplicitKey("x/y"), "x/y"),
        (cache.DeletedFinalStateUnknown("ns/gone", None), "ns/gone"),
    ],
)
def test_keys(obj: Any, key: str) -> None:
    assert cache.deletion_handling_meta_namespace_key_func(obj) == key


@pytest.mark.parametrize(("key", "parts"), [("a", ("", "a")), ("ns/a", ("ns", "a"))])
def test_split_key(key: str, parts: tuple[str, str]) -> None:
    assert cache.split_meta_namespace_key(key) == parts
    assert str(cache.ObjectName(*parts)) == key


def test_split_bad_key() -> None:
    with pytest.raises(ValueError, match='unexpected key format: "a/b/c"'):
        cache.split_meta_namespace_key("a/b/c")


def test_no_key() -> None:
    store = cache.new_store(cache.meta_namespace_key_func)
    with pytest.raises(cache.ObjectKeyError, match="couldn't create key for object 'what'"):
        store.add("what")


@pytest.mark.parametrize(
    "store",
    [
        cache.new_store(cache.meta_namespace_key_func),
        cache.new_indexer(cache.meta_namespace_key_func, {"namespace": cache.meta_namespace_index_func}),
        cache.UndeltaStore[v1.Pod](lambda pods: None, cache.meta_namespace_key_func),
    ],
    ids=["store", "indexer", "undelta store"],
)
def test_store(store: cache.Store[v1.Pod]) -> None:
    first, second = pod("a", "ns"), pod("a", "ns", "2")
    store.add(first)
    assert store.get(second) is first and store.get_by_key("ns/a") is first
    store.update(second)
    assert store.list() == [second] and store.list_keys() == ["ns/a"]
    store.delete(first)
    store.delete(first)
    assert store.get(first) is None and store.list() == []
    store.add(pod("old"))
    store.replace([first, pod("b")], "7")
    assert sorted(store.list_keys()) == ["b", "ns/a"]


def by_label(obj: v1.Pod) -> list[str]:
    return obj.metadata.labels.get("users", "").split("-")


def indexer(*pods: v1.Pod) -> cache.Indexer[v1.Pod]:
    made = cache.new_indexer(cache.meta_namespace_key_func, {"users": by_label})
    for obj in pods:
        made.add(obj)
    return made


def names(pods: list[v1.Pod]) -> list[str]:
    return sorted(obj.metadata.name for obj in pods)


def test_index_by_several_values() -> None:
    made = indexer(pod("one", users="ernie-bert"), pod("two", users="bert-oscar"), pod("tre", users="ernie-elmo"))
    assert names(made.by_index("users", "ernie")) == ["one", "tre"]
    assert names(made.by_index("users", "bert")) == ["one", "two"]
    assert names(made.index("users", pod("x", users="elmo-oscar"))) == ["tre", "two"]
    assert made.index_keys("users", "oscar") == ["two"]
    assert sorted(made.list_index_func_values("users")) == ["bert", "elmo", "ernie", "oscar"]
    made.delete(pod("two"))
    made.update(pod("tre", users="bert"))
    assert names(made.by_index("users", "ernie")) == ["one"]
    assert names(made.by_index("users", "bert")) == ["one", "tre"]


def test_index_forgets_values_that_nothing_has() -> None:
    made = indexer(pod("one", users="ernie"), pod("two", users="bert"))
    made.delete(pod("one"))
    assert made.list_index_func_values("users") == ["bert"]
    made.replace([pod("tre", users="elmo")], "1")
    assert made.list_index_func_values("users") == ["elmo"]


def test_transactions_are_done_together() -> None:
    made = indexer(pod("one", users="ernie"), pod("two", users="bert"))
    made.transaction(
        cache.Transaction(cache.TransactionType.ADD, pod("tre", users="elmo")),
        cache.Transaction(cache.TransactionType.UPDATE, pod("one", users="oscar")),
        cache.Transaction(cache.TransactionType.DELETE, pod("two")),
        cache.Transaction(cache.TransactionType.DELETE, pod("four")),
    )
    assert sorted(made.list_keys()) == ["one", "tre"]
    assert sorted(made.list_index_func_values("users")) == ["elmo", "oscar"]


def test_a_transaction_that_fails_keeps_no_other_from_it() -> None:
    made = cache.new_indexer(cache.meta_namespace_key_func, {"size": lambda obj: [obj.metadata.labels["size"]]})
    what: Any = "what"
    with pytest.raises(cache.TransactionError, match=r"failed to execute \(2/4\) transactions") as raised:
        made.transaction(
            *(
                cache.Transaction(cache.TransactionType.ADD, obj)
                for obj in (pod("one", size="1"), what, pod("bad"), pod("two", size="2"))
            )
        )
    assert raised.value.successful_indices == [0, 3]
    assert [(index, type(err)) for index, err in sorted(raised.value.errors.items())] == [
        (1, cache.ObjectKeyError),
        (2, KeyError),
    ]
    assert all(err.__traceback__ is None for err in raised.value.errors.values()), "frames are kept"
    assert made.index_keys("size", "2") == ["two"]


def test_a_replacement_that_fails_changes_nothing() -> None:
    made = cache.new_indexer(cache.meta_namespace_key_func, {"size": lambda obj: [obj.metadata.labels["size"]]})
    made.add(pod("one", size="1"))
    with pytest.raises(KeyError):
        made.replace([pod("two", size="2"), pod("bad")], "7")
    assert made.list_keys() == ["one"]
    assert made.list_index_func_values("size") == ["1"] and made.index_keys("size", "1") == ["one"]


def test_index_that_does_not_exist() -> None:
    with pytest.raises(LookupError, match="Index with name nope does not exist"):
        indexer().by_index("nope", "x")


def test_add_indexers_to_what_is_stored() -> None:
    made = indexer(pod("one", "ns", users="ernie"))
    made.add_indexers({cache.NAMESPACE_INDEX: cache.meta_namespace_index_func})
    assert names(made.by_index(cache.NAMESPACE_INDEX, "ns")) == ["one"]
    assert sorted(made.get_indexers()) == ["namespace", "users"]
    with pytest.raises(ValueError, match="indexer conflict: users"):
        made.add_indexers({"users": by_label})


def test_undelta_store_tells_everything_at_each_change() -> None:
    told: list[list[str]] = []
    store = cache.UndeltaStore[v1.Pod](lambda pods: told.append(names(pods)), cache.meta_namespace_key_func)
    store.add(pod("a"))
    store.add(pod("b"))
    store.update(pod("a", uid="2"))
    store.delete(pod("b"))
    store.replace([pod("c"), pod("d")], "0")
    assert told == [["a"], ["a", "b"], ["a", "b"], ["a"], ["c", "d"]]
    store.list()
    store.list_keys()
    store.get(pod("c"))
    store.get_by_key("c")
    store.resync()
    assert len(told) == 5, "reading is no change"


ALL = (pod("a", "x", app="web"), pod("b", "x", app="db"), pod("c", "y", app="web"))
WEB = labels.selector_from_set({"app": "web"})


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    ("namespace", "selector", "expected"),
    [
        ("", labels.everything(), ["a", "b", "c"]),
        ("", WEB, ["a", "c"]),
        ("x", labels.everything(), ["a", "b"]),
        ("x", WEB, ["a"]),
        ("z", labels.everything(), []),
        ("", labels.nothing(), []),
        ("x", labels.nothing(), []),
    ],
)
def test_list_all(indexed: bool, namespace: str, selector: labels.Selector, expected: list[str]) -> None:
    indexers: cache.Indexers = {cache.NAMESPACE_INDEX: cache.meta_namespace_index_func} if indexed else {}
    made: cache.Indexer[v1.Pod] = cache.new_indexer(cache.meta_namespace_key_func, indexers)
    made.replace(ALL, "1")
    assert names(cache.list_all_by_namespace(made, namespace, selector)) == expected


def test_lister() -> None:
    made: cache.Indexer[v1.Pod] = cache.new_indexer(cache.meta_namespace_key_func, {})
    made.replace(ALL, "1")
    lister = cache.GenericLister(made, "pods")
    assert names(lister.list()) == ["a", "b", "c"]
    assert lister.by_namespace("y").get("c") is ALL[2]
    with pytest.raises(apierrors.StatusError, match='pods "a" not found') as raised:
        lister.by_namespace("y").get("a")
    assert apierrors.is_not_found(raised.value)
