"""CPU shares and quota, as the runtime reports them, back into thousandths of a CPU.

Go: pkg/kubelet/kuberuntime/helpers_linux.go
"""

from __future__ import annotations

from kubelet import cm


def shares_to_milli_cpu(shares: int) -> int:
    """Rounded up, so that what was asked for comes out again; 0 for no shares."""
    return -(-shares * 1000 // cm.SHARES_PER_CPU) if shares >= cm.MIN_SHARES else 0


def quota_to_milli_cpu(quota: int, period: int) -> int:
    """Both in µs; 0 for no quota."""
    return 0 if quota == -1 else quota * 1000 // period
