"""The latest result of every probe, by container, and a channel that tells when one changes.

Go: pkg/kubelet/prober/results
"""

from kubelet.prober.results.results_manager import Manager, Result, Update

FAILURE = Result.FAILURE
SUCCESS = Result.SUCCESS
UNKNOWN = Result.UNKNOWN

__all__ = ["FAILURE", "SUCCESS", "UNKNOWN", "Manager", "Result", "Update"]
