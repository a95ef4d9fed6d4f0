"""Test how the node's address is found."""

from __future__ import annotations

import subprocess
import sys
from ipaddress import ip_address

import pytest

from pkg.apimachinery.util.net import resolve_bind_address

_TELL = "from pkg.apimachinery.util.net import resolve_bind_address; print(resolve_bind_address(None))"


def test_address_that_is_one_stays() -> None:
    assert resolve_bind_address(ip_address("192.0.2.7")) == ip_address("192.0.2.7")


@pytest.mark.parametrize(
    ("setup", "expected"),
    [
        pytest.param("ip route add default via 198.51.100.1", "198.51.100.7", id="the interface's first address"),
        pytest.param(
            "ip route add default via 198.51.100.1 src 198.51.100.8", "198.51.100.8", id="the route's own source"
        ),
        pytest.param("true", "no default routes found on the host", id="no route"),
    ],
)
def test_address_of_the_default_route(setup: str, expected: str) -> None:
    """The address is the source address of the default route.

    The test runs in its own network namespace, with an interface that leads nowhere.
    """
    script = (
        "ip link add d0 type veth peer name d1"
        " && ip addr add 198.51.100.7/24 dev d0 && ip addr add 198.51.100.8/24 dev d0"
        f" && ip link set d1 up && ip link set d0 up && {setup} && {sys.executable} -c '{_TELL}'"
    )
    done = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout or done.stderr).strip().endswith(expected)
