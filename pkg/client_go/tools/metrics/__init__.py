"""Report the client's requests to registered observers.

Go: k8s.io/client-go/tools/metrics
"""

from __future__ import annotations

import datetime


class Observer:
    """Observe requests, in the thread that makes each request.

    Every method does nothing unless a subclass overrides it.
    """

    def request_result(self, code: str, method: str, host: str) -> None:
        """Observe one attempt; the code is "<error>" without a response."""

    def request_latency(self, verb: str, host: str, seconds: float) -> None:
        """Observe one request with all its attempts."""

    def request_retry(self, code: str, verb: str, host: str) -> None:
        """Observe one attempt that was not the first."""

    def request_size(self, verb: str, host: str, size: int) -> None:
        """Observe the size of a request's body in bytes."""

    def response_size(self, verb: str, host: str, size: int) -> None:
        """Observe the size of a response's body in bytes."""

    def rate_limiter_latency(self, verb: str, host: str, seconds: float) -> None:
        """Observe how long the client's rate limiter delayed a request."""

    def resolver_latency(self, host: str, seconds: float) -> None:
        """Observe how long the lookup of a host's addresses took."""

    def client_cert_expiry(self, expiry: datetime.datetime | None) -> None:
        """Observe when the first of the credential plugins' certificates expires, or None if there is none."""

    def client_cert_rotation_age(self, seconds: float) -> None:
        """Observe the age of a credential plugin's certificate when another certificate replaces it."""

    def exec_plugin_call(self, code: int, call_status: str) -> None:
        """Observe one run of a credential plugin."""


_observers: list[Observer] = []


def register(observer: Observer) -> None:
    """Call the observer for everything from now on."""
    _observers.append(observer)


def request_result(code: str, method: str, host: str) -> None:
    for observer in _observers:
        observer.request_result(code, method, host)


def request_latency(verb: str, host: str, seconds: float) -> None:
    for observer in _observers:
        observer.request_latency(verb, host, seconds)


def request_retry(code: str, verb: str, host: str) -> None:
    for observer in _observers:
        observer.request_retry(code, verb, host)


def request_size(verb: str, host: str, size: int) -> None:
    for observer in _observers:
        observer.request_size(verb, host, size)


def response_size(verb: str, host: str, size: int) -> None:
    for observer in _observers:
        observer.response_size(verb, host, size)


def rate_limiter_latency(verb: str, host: str, seconds: float) -> None:
    for observer in _observers:
        observer.rate_limiter_latency(verb, host, seconds)


def resolver_latency(host: str, seconds: float) -> None:
    for observer in _observers:
        observer.resolver_latency(host, seconds)


def client_cert_expiry(expiry: datetime.datetime | None) -> None:
    for observer in _observers:
        observer.client_cert_expiry(expiry)


def client_cert_rotation_age(seconds: float) -> None:
    for observer in _observers:
        observer.client_cert_rotation_age(seconds)


def exec_plugin_call(code: int, call_status: str) -> None:
    for observer in _observers:
        observer.exec_plugin_call(code, call_status)
