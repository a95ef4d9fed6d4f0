"""Call the fake runtime through the remote services, but without a socket."""

from __future__ import annotations

from kubelet.cri.remote import remote_image, remote_runtime
from kubelet.cri.remote.client import Client
from kubelet.cri.remote.fake.runtime import FakeRuntime
from pkg import golang

_ENDPOINT = "unix:///fake.sock"
_TIMEOUT = 120.0


class InProcessRuntimeService(remote_runtime.RemoteRuntimeService):
    """Run the real service, with its checks of responses, on a runtime in this process."""

    def __init__(self, runtime: FakeRuntime) -> None:
        super().__init__(golang.background(), _ENDPOINT, _TIMEOUT)
        self._client.close()
        self._client: Client = _NotClosing(runtime)


class InProcessImageService(remote_image.RemoteImageService):
    """Run the real image service on a runtime in this process; give both services the same runtime."""

    def __init__(self, runtime: FakeRuntime) -> None:
        super().__init__(golang.background(), _ENDPOINT, _TIMEOUT)
        self._client.close()
        self._client: Client = _NotClosing(runtime)


class _NotClosing:
    """Forward calls to the runtime, which both services share and its owner closes."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.invoke = runtime.invoke
        self.stream = runtime.stream

    def close(self) -> None:
        """Do nothing, because there is no connection."""
