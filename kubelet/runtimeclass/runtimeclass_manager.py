"""Looks up the handler of a RuntimeClass.

Go: pkg/kubelet/runtimeclass/runtimeclass_manager.go
"""

from __future__ import annotations

from collections.abc import Callable


class RuntimeClassNotFoundError(LookupError):
    """The API has no RuntimeClass of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f'runtimeclass.node.k8s.io "{name}" not found')


class Manager:
    """Answers by a lister of the API server's objects; without an API server the kubelet has no manager."""

    def __init__(self, get_handler: Callable[[str], str | None]) -> None:
        """get_handler gives the handler of a RuntimeClass by its name, None for one that does not exist."""
        self._get_handler = get_handler

    def lookup_runtime_handler(self, runtime_class_name: str | None) -> str:
        """The handler, "" for no RuntimeClass. Raises RuntimeClassNotFoundError."""
        if not runtime_class_name:
            return ""
        handler = self._get_handler(runtime_class_name)
        if handler is None:
            raise RuntimeClassNotFoundError(runtime_class_name)
        return handler
