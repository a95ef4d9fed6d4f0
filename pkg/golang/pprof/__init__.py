"""What the program is doing, for people and for `go tool pprof`.

Go: net/http/pprof, runtime/pprof

DIVERGES: the profiles are Python's: functions and lines of Python code, threads in the place of goroutines. Whatever
Python cannot tell is answered with 501 and a sentence why.

Reading order: handlers.py (pages), profiles.py (what a profile holds), sampler.py (where the time goes), encoding.py
(the format that pprof reads).
"""

from pkg.golang.pprof.handlers import BASE_PATH, serve

__all__ = ["BASE_PATH", "serve"]
