"""Build the variables of services: NAME_SERVICE_HOST and those of Docker's links.

Go: pkg/kubelet/envvars/envvars.go
"""

from __future__ import annotations

from collections.abc import Iterable

from pkg.api.core import v1


def from_services(services: Iterable[v1.Service]) -> list[v1.EnvVar]:
    """Return the variables of all services with a cluster IP, in the services' order."""
    return [
        v1.EnvVar(name=name, value=value)
        for service in services
        if service.spec.cluster_ip and service.spec.cluster_ip != v1.CLUSTER_IP_NONE
        for name, value in _service_variables(service)
    ]


def _service_variables(service: v1.Service) -> list[tuple[str, str]]:
    prefix = _make_env_variable_name(service.metadata.name)
    ports = service.spec.ports
    variables = [
        (f"{prefix}_SERVICE_HOST", service.spec.cluster_ip),
        # The variable of the first port has no port name.
        (f"{prefix}_SERVICE_PORT", str(ports[0].port)),
    ]
    variables += [
        (f"{prefix}_SERVICE_PORT_{_make_env_variable_name(port.name)}", str(port.port)) for port in ports if port.name
    ]
    return variables + _link_variables(prefix, service)


def _make_env_variable_name(text: str) -> str:
    return text.replace("-", "_").upper()


def _link_variables(prefix: str, service: v1.Service) -> list[tuple[str, str]]:
    variables: list[tuple[str, str]] = []
    address = service.spec.cluster_ip
    for index, port in enumerate(service.spec.ports):
        protocol = (port.protocol or v1.PROTOCOL_TCP).lower()
        url = f"{protocol}://{_join_host_port(address, port.port)}"
        if index == 0:
            variables.append((f"{prefix}_PORT", url))
        port_prefix = f"{prefix}_PORT_{port.port}_{protocol.upper()}"
        variables += [
            (port_prefix, url),
            (f"{port_prefix}_PROTO", protocol),
            (f"{port_prefix}_PORT", str(port.port)),
            (f"{port_prefix}_ADDR", address),
        ]
    return variables


def _join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
