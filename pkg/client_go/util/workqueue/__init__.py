"""Divide work among several threads.

Go: k8s.io/client-go/util/workqueue
"""

from pkg.client_go.util.workqueue.parallelizer import parallelize_until

__all__ = ["parallelize_until"]
