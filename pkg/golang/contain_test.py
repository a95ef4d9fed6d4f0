from __future__ import annotations

import io

import pytest

from pkg import golang
from pkg.golang.contain import contain


@pytest.mark.parametrize("err", [RecursionError("too deep"), UnicodeError("no text"), MemoryError(), ValueError("bad")])
def test_contain_logs_the_exception_and_goes_on(err: Exception, log: io.StringIO) -> None:
    with contain("Failed to read the manifest", path="/m/a.yaml"):
        raise err
    assert '"Failed to read the manifest"' in log.getvalue()
    assert 'path="/m/a.yaml"' in log.getvalue()
    assert "contain_test.py" in log.getvalue()


def test_contain_lets_the_end_of_a_context_pass() -> None:
    with pytest.raises(golang.Canceled), contain("Failed"):
        raise golang.Canceled


@pytest.mark.parametrize("err", [SystemExit, KeyboardInterrupt])
def test_contain_lets_the_end_of_the_process_pass(err: type[BaseException]) -> None:
    with pytest.raises(err), contain("Failed"):
        raise err


def test_contain_with_a_context_takes_the_end_of_another_for_a_failure(log: io.StringIO) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    with contain("Failed", ctx):
        raise golang.DeadlineExceeded
    assert '"Failed"' in log.getvalue()
    cancel()
    with pytest.raises(golang.Canceled), contain("Failed", ctx):
        raise golang.Canceled
