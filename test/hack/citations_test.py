"""Test the parsing of citations in docstrings, the search for their names, and the reported faults."""

from __future__ import annotations

from pathlib import Path

import citations
import pytest
from citations import Cited, Declared, Tables

GENERIC = "pkg/kubelet/pleg/generic.go"


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        pytest.param("Go: a/b.go", ["a/b.go"], id="all of it"),
        pytest.param("What it is.\n\nGo: a/b.go,\n    c.go\n\nMore.", ["a/b.go, c.go"], id="paragraph"),
        pytest.param("What it is. Go: f. Thread-safe.", ["f"], id="up to a full stop"),
        pytest.param("What it is. Go: k8s.io/b.go; no more", ["k8s.io/b.go"], id="up to a semicolon"),
        pytest.param("Too short (Go: io.ErrShortWrite).", ["io.ErrShortWrite)"], id="in brackets"),
        pytest.param("Go: f.\nGo: g", ["f", "g"], id="two"),
        pytest.param("As in Go: by events alone.", [], id="in a sentence"),
        pytest.param("DIVERGES (safer): this.\nGo: a/b.go, f: that.\n\nGo: g", ["g"], id="beside a record"),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert list(citations.sentences(text)) == sentences


@pytest.mark.parametrize(
    ("sentence", "cited"),
    [
        pytest.param(f"{GENERIC}", [Cited(GENERIC)], id="file"),
        pytest.param("k8s.io/klog/v2", [Cited("k8s.io/klog/v2")], id="package"),
        pytest.param(
            f"{GENERIC}, (*GenericPLEG).Relist", [Cited(GENERIC), Cited(GENERIC, "GenericPLEG.Relist")], id="method"
        ),
        pytest.param(
            "a/b.go, c.go (Request.Watch, run)",
            [Cited("a/b.go"), Cited("a/c.go"), Cited("a/c.go", "Request.Watch"), Cited("a/c.go", "run")],
            id="file without a folder",
        ),
        pytest.param("c.go, f", [Cited("pkg/here/c.go"), Cited("pkg/here/c.go", "f")], id="file of this folder"),
        pytest.param("http.ReadResponse", [Cited("", "http.ReadResponse")], id="symbol of a package"),
        pytest.param("getLimit and what it needs", [Cited("", "getLimit")], id="symbol with prose"),
        pytest.param("run, as the loop does", [Cited("", "run")], id="first word"),
        pytest.param("os (RemoveAll)", [Cited("os"), Cited("os", "RemoveAll")], id="package without a slash"),
        pytest.param("a/b in 1.27", [Cited("a/b", before=True)], id="1.27"),
        pytest.param("a/b, a/c in 1.27 (F)", [Cited("a/b"), Cited("a/c", before=True), Cited("a/c", "F", True)]),
        pytest.param("none, for Go has a type", [], id="none"),
    ],
)
def test_parse(sentence: str, cited: list[Cited]) -> None:
    assert list(citations.parse(sentence, "pkg/here", ["os"])) == cited


@pytest.fixture
def tables() -> Tables:
    now, cited, before = Declared(), Declared(), Declared()
    now.add("pkg/kubelet/pleg", "generic.go", ["NewGenericPLEG", "GenericPLEG.Relist"])
    now.add("pkg/kubelet/pleg", "pleg.go", ["PodLifecycleEvent", "Relist"])
    before.add("pkg/kubelet/cri", "remote.go", ["dial"])
    return Tables(now, cited, before)


def faults(tmp_path: Path, tables: Tables, source: str) -> list[str]:
    (tmp_path / "kubelet").mkdir()
    (tmp_path / "kubelet/a.py").write_text(source)
    return citations.faults(tmp_path, tables)


@pytest.mark.parametrize(
    "sentence",
    [
        GENERIC,
        "pkg/kubelet",
        f"{GENERIC}, (*GenericPLEG).Relist",
        f"{GENERIC}, Relist",
        "pkg/kubelet/pleg (NewGenericPLEG)",
        "pleg.PodLifecycleEvent",
        "pkg/kubelet/cri/remote.go in 1.27",
        "pkg/kubelet/cri in 1.27, dial in 1.27",
        "none; pkg/gone.go was it",
    ],
)
def test_what_go_has(tmp_path: Path, tables: Tables, sentence: str) -> None:
    assert faults(tmp_path, tables, f'"""Go: {sentence}"""\n') == []


@pytest.mark.parametrize(
    ("sentence", "fault"),
    [
        ("pkg/kubelet/pleg/gone.go", "Go has no file or package pkg/kubelet/pleg/gone.go"),
        ("pkg/gone", "Go has no file or package pkg/gone"),
        (f"{GENERIC} (GenericPLEG.Gone)", f"Go declares no GenericPLEG.Gone in {GENERIC}"),
        (f"{GENERIC}, PodLifecycleEvent", f"Go declares no PodLifecycleEvent in {GENERIC}"),
        ("relist", "the docstring cites no file of relist"),
        ("pkg/kubelet/cri/remote.go", "Go has no file or package pkg/kubelet/cri/remote.go"),
        (f"{GENERIC} in 1.27", f"Go has no file or package {GENERIC}"),
    ],
)
def test_what_go_has_not(tmp_path: Path, tables: Tables, sentence: str, fault: str) -> None:
    assert faults(tmp_path, tables, f'"""Go: {sentence}"""\n') == [f"kubelet/a.py : {fault}"]


def test_symbol_is_looked_for_in_what_is_cited_around_it(tmp_path: Path, tables: Tables) -> None:
    source = (
        f'"""Go: {GENERIC}"""\n\n\nclass A:\n    def f(self):\n        """Go: Relist"""\n\n'
        '    def g(self):\n        """Go: PodLifecycleEvent"""\n\n'
        '    def h(self):\n        """Go: pleg.go, PodLifecycleEvent"""\n'
    )
    assert faults(tmp_path, tables, source) == [f"kubelet/a.py A.g: Go declares no PodLifecycleEvent in {GENERIC}"]


def test_rows_of_the_table_are_needed(tmp_path: Path, tables: Tables) -> None:
    tables.cited.add("net/http", "response.go", ["ReadResponse", "Response.Write"])
    tables.cited.add("net/http", "client.go", [])
    tables.cited.add("context", "", [])
    tables.cited.add("strings", "", [])
    tables.cited.add("pkg/kubelet/pleg", "pleg.go", ["PodLifecycleEvent"])
    source = '"""Go: context, http.ReadResponse, pkg/kubelet/pleg/pleg.go (PodLifecycleEvent)"""\n'
    assert faults(tmp_path, tables, source) == [
        "cited-v1.36.2.tsv: no docstring needs net/http/response.go Response.Write",
        "cited-v1.36.2.tsv: no docstring needs net/http/client.go",
        "cited-v1.36.2.tsv: no docstring needs strings",
        "cited-v1.36.2.tsv: no docstring needs pkg/kubelet/pleg/pleg.go PodLifecycleEvent",
    ]


def test_tree_has_no_fault() -> None:
    assert citations.faults() == []


def test_table_is_sorted_and_has_nothing_twice() -> None:
    rows = [tuple(row.split("\t")) for row in citations.CITED.read_text().splitlines()[1:]]
    assert rows == sorted(rows)
    assert len({row[:2] for row in rows}) == len(rows)
    assert all(names.split(",") == sorted(set(names.split(","))) for *_, names in rows)
