"""Run named operations in the background, one at a time for each name.

Go: pkg/util/goroutinemap
"""

from pkg.util.goroutinemap.goroutinemap import AlreadyExistsError, GoRoutineMap

__all__ = ["AlreadyExistsError", "GoRoutineMap"]
