"""Test the environment variables of services.

Go: pkg/kubelet/envvars/envvars_test.go
"""

from __future__ import annotations

from kubelet import envvars
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1


def _service(name: str, ip: str, *ports: v1.ServicePort) -> v1.Service:
    return v1.Service(metadata=metav1.ObjectMeta(name=name), spec=v1.ServiceSpec(cluster_ip=ip, ports=list(ports)))


def test_from_services() -> None:
    services = [
        _service("foo-bar", "1.2.3.4", v1.ServicePort(port=8080, protocol="TCP")),
        _service(
            "abc-123",
            "5.6.7.8",
            v1.ServicePort(name="u-d-p", port=8081, protocol="UDP"),
            v1.ServicePort(name="t-c-p", port=8081),
        ),
        _service("v6", "2001:DB8::1", v1.ServicePort(port=80)),
        _service("none", "None", v1.ServicePort(port=8082)),
        _service("empty", "", v1.ServicePort(port=8082)),
    ]
    assert [f"{env.name}={env.value}" for env in envvars.from_services(services)] == [
        "FOO_BAR_SERVICE_HOST=1.2.3.4",
        "FOO_BAR_SERVICE_PORT=8080",
        "FOO_BAR_PORT=tcp://1.2.3.4:8080",
        "FOO_BAR_PORT_8080_TCP=tcp://1.2.3.4:8080",
        "FOO_BAR_PORT_8080_TCP_PROTO=tcp",
        "FOO_BAR_PORT_8080_TCP_PORT=8080",
        "FOO_BAR_PORT_8080_TCP_ADDR=1.2.3.4",
        "ABC_123_SERVICE_HOST=5.6.7.8",
        "ABC_123_SERVICE_PORT=8081",
        "ABC_123_SERVICE_PORT_U_D_P=8081",
        "ABC_123_SERVICE_PORT_T_C_P=8081",
        "ABC_123_PORT=udp://5.6.7.8:8081",
        "ABC_123_PORT_8081_UDP=udp://5.6.7.8:8081",
        "ABC_123_PORT_8081_UDP_PROTO=udp",
        "ABC_123_PORT_8081_UDP_PORT=8081",
        "ABC_123_PORT_8081_UDP_ADDR=5.6.7.8",
        "ABC_123_PORT_8081_TCP=tcp://5.6.7.8:8081",
        "ABC_123_PORT_8081_TCP_PROTO=tcp",
        "ABC_123_PORT_8081_TCP_PORT=8081",
        "ABC_123_PORT_8081_TCP_ADDR=5.6.7.8",
        "V6_SERVICE_HOST=2001:DB8::1",
        "V6_SERVICE_PORT=80",
        "V6_PORT=tcp://[2001:DB8::1]:80",
        "V6_PORT_80_TCP=tcp://[2001:DB8::1]:80",
        "V6_PORT_80_TCP_PROTO=tcp",
        "V6_PORT_80_TCP_PORT=80",
        "V6_PORT_80_TCP_ADDR=2001:DB8::1",
    ]
