"""Replace the log manager when rotation is disabled.

Go: pkg/kubelet/logs/container_log_manager_stub.go
"""

from __future__ import annotations

from pkg import golang


class ContainerLogManagerStub:
    def start(self, ctx: golang.Context) -> None:
        pass

    def clean(self, ctx: golang.Context, container_id: str) -> None:
        pass
