"""Adjust how soon the kernel kills a process when memory runs out.

Go: pkg/util/oom/oom_linux.go
"""

from __future__ import annotations

from pathlib import Path


class OOMAdjuster:
    """Write OOM score adjustments."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = Path(proc)

    def apply_oom_score_adj(self, pid: int, oom_score_adj: int) -> None:
        """Set the adjustment of a process; pid 0 means this one.

        Raise ValueError or OSError. Lowering the value needs CAP_SYS_RESOURCE.
        """
        if pid < 0:
            raise ValueError(f"invalid PID {pid} specified for oom_score_adj")
        path = self._proc / (str(pid) if pid else "self") / "oom_score_adj"
        try:
            if int(path.read_text()) != oom_score_adj:
                path.write_text(str(oom_score_adj))
        except OSError as err:
            raise OSError(f"failed to apply oom-score-adj to pid {pid} ({err})") from err
