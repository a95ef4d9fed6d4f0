"""Test the check of documents: the reported faults, and the accepted text."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework.scripts import load_script

verify_docs = load_script("verify_docs")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("[a](gone.md)", "link to gone.md", id="link to no file"),
        pytest.param("[a](other.md#gone)", "no such heading", id="link to no heading"),
        pytest.param("[a](#gone)", "no such heading", id="link to no heading of its own"),
        pytest.param("[a](code.py#L99)", "which the file does not have", id="link past the end"),
        pytest.param("[`g`](code.py)", "does not define it", id="link to no function"),
        pytest.param("[`A.g`](code.py)", "does not define it", id="link to no method"),
        pytest.param("`kubelet/gone.py`", "kubelet/gone.py, which does not exist", id="no file"),
        pytest.param("`pkg/kubelet/gone.go`", "pkg/kubelet/gone.go, which does not exist", id="no Go file"),
        pytest.param("`hack/go_map.py:gone`", "not defined there", id="no function in that file"),
        pytest.param("see hack/gone", "hack/gone, which does not exist", id="no script"),
        pytest.param("`make gone`", "which the Makefile does not have", id="no target"),
        pytest.param("```\npython -m cmd.gone\n```", "cannot be run", id="no module"),
    ],
)
def test_faults(tmp_path: Path, text: str, fault: str) -> None:
    found = list(verify_docs.faults(document(tmp_path, text)))
    assert len(found) == 1
    assert fault in found[0]


@pytest.mark.parametrize(
    "text",
    [
        "[a](other.md) [a](other.md#a-heading-and-more) [a](https://example.org/gone) [a](code.py#L1)",
        "[`f`](code.py) [`A.m`](code.py) [`A.m()`](code.py) [words](code.py)",
        "`kubelet/kubelet.py` `pkg/kubelet/kubelet.go` `pkg/kubelet` `hack/go_map.py:Map.current` hack/go_map.py.",
        "`make run` and ways to make gone things; `python -m cmd.kubelet`, `python -m pytest`",
    ],
)
def test_lets_pass(tmp_path: Path, text: str) -> None:
    assert list(verify_docs.faults(document(tmp_path, text))) == []


def test_documents_of_all_places_are_looked_at() -> None:
    names = {str(path.relative_to(verify_docs.ROOT)) for path in verify_docs.documents()}
    assert names >= {"NOTICE", "README.md", "CONTRIBUTING.md", "docs/design/README.md", "hack/go-map/README.md"}


def test_names_of_threads() -> None:
    source = 'golang.go(f, name="one")\ngolang.go(f, 1, name=f"two-{uid}")\ngolang.go(f)\nother.go(f, name="no")\n'
    assert list(verify_docs.thread_names(source)) == ["one", "two-"]


def test_table_without_threads_lacks_all() -> None:
    missing = list(verify_docs.missing_threads("## Threads\n`pleg-relist` `podworker-UID`\n## More\n`pleg-inspect`\n"))
    assert any("the thread pleg-inspect of kubelet/pleg/generic.py" in each for each in missing)
    assert not any("pleg-relist" in each or "podworker" in each for each in missing)


def document(directory: Path, text: str) -> Path:
    (directory / "other.md").write_text("# Title\n\n## A heading, and more\n")
    path = directory / "code.py"
    path.write_text("def f(): ...\n\n\nclass A:\n    def m(self): ...\n")
    found = directory / "document.md"
    found.write_text(text)
    return found
