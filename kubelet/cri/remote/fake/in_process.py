"""The remote services without a socket between them and the fake runtime."""

from __future__ import annotations

from kubelet.cri.remote import remote_image, remote_runtime
from kubelet.cri.remote.client import Client
from kubelet.cri.remote.fake.runtime import FakeRuntime
from pkg import golang

_ENDPOINT = "unix:///fake.sock"
_TIMEOUT = 120.0


class InProcessRuntimeService(remote_runtime.RemoteRuntimeService):
    """The real service, checks of answers included, on a runtime in this process."""

    def __init__(self, runtime: FakeRuntime) -> None:
        super().__init__(golang.background(), _ENDPOINT, _TIMEOUT)
        self._client.close()
        self._client: Client = _NotClosing(runtime)


class InProcessImageService(remote_image.RemoteImageService):
    """As InProcessRuntimeService; give both the same runtime."""

    def __init__(self, runtime: FakeRuntime) -> None:
        super().__init__(golang.background(), _ENDPOINT, _TIMEOUT)
        self._client.close()
        self._client: Client = _NotClosing(runtime)


class _NotClosing:
    """Both services share the runtime, which its owner closes."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.invoke = runtime.invoke
        self.stream = runtime.stream

    def close(self) -> None:
        """Nothing to end."""
