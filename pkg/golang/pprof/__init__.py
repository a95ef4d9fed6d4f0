"""Serve profiles of the program, for people and for `go tool pprof`.

Go: net/http/pprof, runtime/pprof

DIVERGES (platform): this kubelet serves profiles of Python: functions and lines of Python code, and threads instead of
goroutines. It responds with 501 and the reason for a profile that Python cannot provide.
Go: net/http/pprof/pprof.go, handler.ServeHTTP: the Go kubelet's profiles are of Go code, goroutines, locks and
allocations.
Why: there is no Go code, and Python records neither locks nor all allocations.
Test: pprof_test.py:test_threads, pprof_test.py:test_what_python_cannot_tell

Read the files in this order: handlers.py (pages), profiles.py (what a profile holds), sampler.py (where the time goes),
encoding.py (the format that pprof reads).
"""

from pkg.golang.pprof.handlers import BASE_PATH, serve

__all__ = ["BASE_PATH", "serve"]
