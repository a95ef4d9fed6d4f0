"""Test the page of configurations."""

from __future__ import annotations

import pytest

from pkg.component_base import configz
from pkg.golang import http
from pkg.golang.http.testing import record


def page() -> http.ServeMux:
    mux = http.ServeMux()
    configz.install_handler(mux)
    return mux


def test_configz() -> None:
    one = configz.new("testing-one")
    try:
        one.set({"kind": "K", "apiVersion": "g/v1", "value": 1})
        response = record(page(), "GET", "/configz")
        assert response.json()["testing-one"] == {"kind": "K", "apiVersion": "g/v1", "value": 1}
        assert response.headers.get("Content-Type") == "application/json"
        with pytest.raises(ValueError, match='register config "testing-one" twice'):
            configz.new("testing-one")
    finally:
        configz.delete("testing-one")
    assert "testing-one" not in record(page(), "GET", "/configz").json()


@pytest.mark.parametrize(
    ("value", "message"),
    [({"apiVersion": "v1"}, "must specify a kind"), ({"kind": "K"}, "must specify a group/version")],
)
def test_a_config_says_what_it_is(value: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configz.Config().set(value)
