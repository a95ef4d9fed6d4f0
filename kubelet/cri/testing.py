"""Runtime and image service without a socket, over one fake runtime, for the tests of what uses them.

Go: k8s.io/cri-api/pkg/apis/testing
"""

from __future__ import annotations

from kubelet.cri.remote import fake, remote_image, remote_runtime
from kubelet.cri.remote.client import Client
from pkg import golang

_TIMEOUT = 120.0


class FakeRuntimeService(remote_runtime.RemoteRuntimeService):
    """The real service, checks of answers included; `fake` has the controls and what was called."""

    def __init__(self, runtime: fake.FakeRuntime | None = None) -> None:
        super().__init__(golang.background(), "unix:///fake.sock", _TIMEOUT)
        self._client.close()
        self.fake = runtime or fake.FakeRuntime()
        self._client: Client = _NotClosing(self.fake)


class FakeImageService(remote_image.RemoteImageService):
    """As FakeRuntimeService; give both the same runtime."""

    def __init__(self, runtime: fake.FakeRuntime | None = None) -> None:
        super().__init__(golang.background(), "unix:///fake.sock", _TIMEOUT)
        self._client.close()
        self.fake = runtime or fake.FakeRuntime()
        self._client: Client = _NotClosing(self.fake)


class _NotClosing:
    """Both services share the runtime, which its owner closes."""

    def __init__(self, runtime: fake.FakeRuntime) -> None:
        self.invoke = runtime.invoke
        self.stream = runtime.stream

    def close(self) -> None:
        """Nothing to end."""
