"""What the program is doing, for people and for `go tool pprof`.

Go: net/http/pprof, runtime/pprof

DIVERGES (platform): the profiles are Python's: functions and lines of Python code, and threads in the place of
goroutines. What Python cannot tell is answered with 501 and the reason.
Go: net/http/pprof/pprof.go, handler.ServeHTTP: the profiles are of Go code, goroutines, locks and allocations.
Why: there is no Go code, and Python records neither locks nor all allocations.
Test: pprof_test.py:test_threads, pprof_test.py:test_what_python_cannot_tell

Reading order: handlers.py (pages), profiles.py (what a profile holds), sampler.py (where the time goes), encoding.py
(the format that pprof reads).
"""

from pkg.golang.pprof.handlers import BASE_PATH, serve

__all__ = ["BASE_PATH", "serve"]
