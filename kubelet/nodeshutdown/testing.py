"""Provide a fake bus.

Go: pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux_test.go
"""

from __future__ import annotations

from pkg import golang


class FakeDBus:
    """Implement nodeshutdown.DBusInhibiter. The test calls `shut_down` and `call_off`."""

    def __init__(
        self,
        inhibit_delay: float = 40.0,
        delay_after_override: float | None = None,
        before: FakeDBus | None = None,
    ) -> None:
        """Create a bus. `before` is an earlier bus, whose locks stay."""
        self.inhibit_delay = inhibit_delay
        self.delay_after_override = delay_after_override
        self.overrides: list[float] = []
        self.locks: set[int] = set() if before is None else before.locks
        self.taken: int = 0 if before is None else before.taken + 100
        self.reloads = 0
        self.closed = False
        self.in_progress = False  # True means that a shutdown is in progress, so there are no locks.
        self.err: Exception | None = None
        self.events: golang.Channel[bool] = golang.Channel(1)

    def shut_down(self) -> None:
        self.events.send(True)

    def call_off(self) -> None:
        self.events.send(False)

    def current_inhibit_delay(self) -> float:
        if self.err is not None:
            raise self.err
        if self.reloads and self.delay_after_override is not None:
            return self.delay_after_override
        return self.inhibit_delay

    def inhibit_shutdown(self) -> int | None:
        if self.in_progress:
            return None
        self.taken += 1
        self.locks.add(self.taken)
        return self.taken

    def release_inhibit_lock(self, lock: int, /) -> None:
        self.locks.remove(lock)

    def reload_logind_conf(self) -> None:
        self.reloads += 1

    def monitor_shutdown(self) -> golang.Channel[bool]:
        return self.events

    def override_inhibit_delay(self, inhibit_delay_max: float, /) -> None:
        self.overrides.append(inhibit_delay_max)

    def close(self) -> None:
        self.closed = True
