"""Test proxies from the environment, with cases from golang.org/x/net/http/httpproxy."""

from __future__ import annotations

import urllib.parse

import pytest

from pkg.golang import httpproxy


@pytest.mark.parametrize(
    ("no_proxy", "url", "used"),
    [
        ("", "http://localhost", False),
        ("", "http://127.0.0.1", False),
        ("", "http://127.0.0.2:8080", False),
        ("", "http://[::1]", False),
        ("", "http://[::ffff:127.0.0.1]", False),
        ("", "http://[::2]", True),
        ("foobar.com, .barbaz.net", "http://barbaz.net", True),
        ("foobar.com, .barbaz.net", "http://www.barbaz.net", False),
        ("foobar.com, .barbaz.net", "http://foobar.com", False),
        ("foobar.com, .barbaz.net", "http://www.foobar.com", False),
        ("foobar.com, .barbaz.net", "http://foofoobar.com", True),
        ("foobar.com", "http://FOOBAR.com", False),
        ("*.barbaz.net", "http://barbaz.net", True),
        ("*.barbaz.net", "http://www.barbaz.net", False),
        ("barbaz.net:80", "http://barbaz.net", False),
        ("barbaz.net:80", "http://barbaz.net:8080", True),
        ("barbaz.net:443", "https://barbaz.net", False),
        ("192.168.1.1", "http://192.168.1.1", False),
        ("192.168.1.1:81", "http://192.168.1.1", True),
        ("192.168.1.1", "http://192.168.1.3", True),
        ("10.0.0.0/8", "https://10.96.0.1:6443", False),
        ("10.1.2.3/8", "https://10.96.0.1", False),
        ("10.0.0.0/8", "https://11.0.0.1", True),
        ("10.0.0.0/255.0.0.0", "https://10.96.0.1", True),
        ("10.0.0.0/8", "https://[::ffff:10.0.0.1]", False),
        ("10.0.0.0/8", "https://10.example.com", True),
        ("fd00::/8", "https://[fd00::1]:6443", False),
        ("fd00::1", "https://[fd00::1]:6443", False),
        ("[fd00::1]:6443", "https://[fd00::1]:6443", False),
        ("[fd00::1]:443", "https://[fd00::1]:6443", True),
        ("1.2.3.4", "http://x1.2.3.4.example", True),
        ("a, *", "http://anything.example", False),
        (" , :80, ,", "http://anything.example", True),
        ("b\u00fccher.example", "http://www.b\u00fccher.example", False),
    ],
)
def test_use_proxy(no_proxy: str, url: str, used: bool) -> None:
    assert httpproxy.use_proxy(no_proxy, urllib.parse.urlsplit(url)) == used


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({"HTTPS_PROXY": "http://p:1", "https_proxy": "http://q"}, "https://a", "http://p:1"),
        ({"https_proxy": "q:1"}, "https://a", "q:1"),
        ({"HTTPS_PROXY": "p"}, "http://a", ""),
        ({"HTTP_PROXY": "p", "no_proxy": "a"}, "http://a", ""),
        ({"HTTP_PROXY": "p", "NO_PROXY": "b", "no_proxy": "a"}, "http://a", "p"),
        ({}, "http://a", ""),
    ],
)
def test_from_environment(environment: dict[str, str], url: str, proxy: str) -> None:
    assert httpproxy.from_environment(environment, urllib.parse.urlsplit(url)) == proxy
