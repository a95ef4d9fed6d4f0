from __future__ import annotations

from pathlib import Path

import pytest

from pkg.util import oom


@pytest.mark.parametrize(("pid", "directory"), [(0, "self"), (17, "17")])
def test_apply(tmp_path: Path, pid: int, directory: str) -> None:
    path = tmp_path / directory / "oom_score_adj"
    path.parent.mkdir()
    path.write_text("0\n")
    oom.OOMAdjuster(str(tmp_path)).apply_oom_score_adj(pid, -999)
    assert path.read_text() == "-999"


def test_failures_name_the_process(tmp_path: Path) -> None:
    adjuster = oom.OOMAdjuster(str(tmp_path))
    with pytest.raises(OSError, match="failed to apply oom-score-adj to pid 17"):
        adjuster.apply_oom_score_adj(17, -999)
    with pytest.raises(ValueError, match="invalid PID -1"):
        adjuster.apply_oom_score_adj(-1, 0)
