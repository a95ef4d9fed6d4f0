"""Push the whole contents of a store to a function at each change.

Go: k8s.io/client-go/tools/cache/undelta_store.go
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from typing import TypeVar

from pkg.client_go.tools.cache.store import Cache, KeyFunc

T = TypeVar("T")


class UndeltaStore(Cache[T]):
    """Call push_func with all objects after each change, in the thread that made the change.

    Only one thread may write, as a Reflector does: two writers could push in a different order than they wrote.
    """

    def __init__(self, push_func: Callable[[builtins.list[T]], object], key_func: KeyFunc) -> None:
        super().__init__(key_func)
        self._push_func = push_func

    def add(self, obj: T) -> None:
        super().add(obj)
        self._push_func(self.list())

    def update(self, obj: T) -> None:
        super().update(obj)
        self._push_func(self.list())

    def delete(self, obj: T) -> None:
        super().delete(obj)
        self._push_func(self.list())

    def replace(self, objs: Iterable[T], resource_version: str) -> None:
        super().replace(objs, resource_version)
        self._push_func(self.list())
