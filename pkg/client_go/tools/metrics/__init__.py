"""Where the client tells how its requests go; who wants to know registers an observer.

Go: k8s.io/client-go/tools/metrics
"""

from __future__ import annotations

import datetime


class Observer:
    """Hears of requests, in whatever thread makes them. Every method does nothing until it is overridden."""

    def request_result(self, code: str, method: str, host: str) -> None:
        """One try; the code is "<error>" without an answer."""

    def request_latency(self, verb: str, host: str, seconds: float) -> None:
        """One request with all its tries."""

    def request_retry(self, code: str, verb: str, host: str) -> None:
        """One try that was not the first."""

    def request_size(self, verb: str, host: str, size: int) -> None:
        """Bytes of a request's body."""

    def response_size(self, verb: str, host: str, size: int) -> None:
        """Bytes of a response's body."""

    def rate_limiter_latency(self, verb: str, host: str, seconds: float) -> None:
        """How long the client's own limit held a request back."""

    def resolver_latency(self, host: str, seconds: float) -> None:
        """Finding out a host's addresses."""

    def client_cert_expiry(self, expiry: datetime.datetime | None) -> None:
        """When the first of the certificates expires that credential plugins gave; None if there is none."""

    def client_cert_rotation_age(self, seconds: float) -> None:
        """How old a plugin's certificate had become when another took its place."""

    def exec_plugin_call(self, code: int, call_status: str) -> None:
        """A run of a credential plugin."""


_observers: list[Observer] = []


def register(observer: Observer) -> None:
    """Tell the observer of everything from now on."""
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
