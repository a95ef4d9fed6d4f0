"""Extend pytest with fixtures for a cluster and a node, and show the kubelet's log only when a test fails.

def test_my_program(cluster, node, wait_for):
    ...
"""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest

from . import waiting

if TYPE_CHECKING:
    from .apiserver.cluster import Cluster
    from .hollow_node import HollowNode

T = TypeVar("T")

# The default timeout is in seconds.
_TIMEOUT = 30.0
_LOG = pytest.StashKey[io.StringIO]()


class WaitFor(Protocol):
    """Define the type of the fixture `wait_for`."""

    def __call__(self, what: str, look: Callable[[], T], timeout: float = ...) -> T: ...


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the kubelet has logged if the test has failed."""
    report = yield
    log = item.stash.get(_LOG, None)
    if report.failed and log is not None and (text := log.getvalue()):
        report.sections.append((f"Log of the kubelet during {report.when}", text))
        log.seek(0)
        log.truncate()
    return report


@pytest.fixture
def _quiet_log(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the kubelet's log for the report of a failing test."""
    from pkg import klog

    log = io.StringIO()
    request.node.stash[_LOG] = log
    klog.set_output(log)
    yield
    klog.set_output(None)


@pytest.fixture
def cluster(_quiet_log: None, tmp_path: Path) -> Iterator[Cluster]:
    """Run a cluster without nodes. The fixture `node` adds one."""
    from .apiserver.cluster import Cluster

    with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def node(cluster: Cluster) -> Iterator[HollowNode]:
    """Run a quick node of the cluster, node-1, which is Ready."""
    from .hollow_node import HollowNode

    with HollowNode(cluster, "node-1", quick=True) as node:
        yield node


@pytest.fixture
def kubeconfig(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the kubeconfig of a user with all permissions. During the test KUBECONFIG names it."""
    path = cluster.admin_kubeconfig
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.fixture
def wait_for() -> WaitFor:
    """Call `look` until its result is true, and return that result. Fail the test after `timeout` seconds."""
    return _wait_for


def _wait_for(what: str, look: Callable[[], T], timeout: float = _TIMEOUT) -> T:
    __tracebackhide__ = True
    return waiting.wait_for(what, look, timeout)
