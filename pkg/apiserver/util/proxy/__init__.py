"""Connect WebSocket clients to a runtime that speaks SPDY.

Go: k8s.io/apiserver/pkg/util/proxy
"""

from pkg.apiserver.util.proxy.streamtranslator import StreamTranslatorHandler
from pkg.apiserver.util.proxy.streamtunnel import TunnelingHandler
from pkg.apiserver.util.proxy.websocket import Options

__all__ = ["Options", "StreamTranslatorHandler", "TunnelingHandler"]
