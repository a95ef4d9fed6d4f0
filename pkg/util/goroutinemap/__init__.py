"""Operations that run in the background under a name, one at a time per name.

Go: pkg/util/goroutinemap
"""

from pkg.util.goroutinemap.goroutinemap import AlreadyExistsError, GoRoutineMap

__all__ = ["AlreadyExistsError", "GoRoutineMap"]
