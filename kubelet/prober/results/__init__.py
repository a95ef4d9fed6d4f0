"""Hold the latest result of every probe by container, and report changes on a channel.

Go: pkg/kubelet/prober/results
"""

from kubelet.prober.results.results_manager import Manager, Result, Update

FAILURE = Result.FAILURE
SUCCESS = Result.SUCCESS
UNKNOWN = Result.UNKNOWN

__all__ = ["FAILURE", "SUCCESS", "UNKNOWN", "Manager", "Result", "Update"]
