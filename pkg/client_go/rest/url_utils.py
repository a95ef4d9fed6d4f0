"""Find the URL of the API server and of the proxy.

Go: k8s.io/client-go/rest/url_utils.go
"""

from __future__ import annotations

import os
import urllib.parse

from pkg.client_go.rest.config import Config
from pkg.golang import httpproxy, net


def default_server_url(config: Config) -> urllib.parse.SplitResult:
    """Return the server's URL.

    Without a scheme in the config, the scheme is https if any TLS setting is present, and http otherwise. Raise
    ValueError if the host is not valid.
    """
    tls = config.tls_client_config
    host = config.host or "localhost"
    if "://" not in host:
        secure = tls.insecure or tls.ca_file or tls.ca_data or tls.cert_file or tls.cert_data or config.get_cert
        host = f"{'https' if secure else 'http'}://{host}"
    try:
        url = urllib.parse.urlsplit(host)
        url.port  # noqa: B018  # raises ValueError
    except ValueError as err:
        raise ValueError(f'host must be a URL or a host:port pair: "{net.redacted(host)}": {err}') from err
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ValueError(f'host must be a URL or a host:port pair: "{net.redacted(host)}"')
    return url


def proxy(config: Config, url: urllib.parse.SplitResult) -> urllib.parse.SplitResult | None:
    """Return the proxy from the config, or else from the environment, or None if this server needs no proxy."""
    text = config.proxy_url or httpproxy.from_environment(os.environ, url)
    if not text:
        return None
    parsed = urllib.parse.urlsplit(text if "://" in text else f"http://{text}")
    if parsed.scheme != "http" or not parsed.hostname:
        # DIVERGES (platform): the client reaches a proxy by plain HTTP only.
        # Go: net/http/transport.go, (*Transport).dialConn: the Go kubelet also supports proxies over TLS and SOCKS5.
        # Why: Python's standard library supports neither SOCKS nor TLS within TLS.
        # Test: client_test.py:test_proxy_of_another_kind_is_refused
        raise ValueError(f'proxy-url "{net.redacted(text)}": only http:// proxies are supported')
    return parsed
