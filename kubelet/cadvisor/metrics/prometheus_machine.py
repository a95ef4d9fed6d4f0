"""Export the facts of the machine as metrics.

Go: github.com/google/cadvisor/metrics/prometheus_machine.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from kubelet.cadvisor.info import v1 as info
from pkg import klog
from pkg.component_base.metrics import GAUGE, new_family

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_METRICS: dict[str, tuple[str, Callable[[info.MachineInfo], float]]] = {
    "machine_cpu_physical_cores": ("Physical cores.", lambda machine: machine.num_physical_cores),
    "machine_cpu_cores": ("Logical processors.", lambda machine: machine.num_cores),
    "machine_cpu_sockets": ("Sockets of processors.", lambda machine: machine.num_sockets),
    # Only mainframes have books and drawers.
    "machine_cpu_books": ("Books of processors.", lambda machine: 0),
    "machine_cpu_drawers": ("Drawers of processors.", lambda machine: 0),
    "machine_memory_bytes": ("Bytes of memory.", lambda machine: machine.memory_capacity),
    "machine_swap_bytes": ("Bytes of swap.", lambda machine: machine.swap_capacity),
    "machine_nvm_avg_power_budget_watts": (
        "Average power budget of persistent memory, in watts.",
        lambda machine: 0,
    ),
}
_NVM_HELP = "Bytes of persistent memory, by mode."


class MachineInfoProvider(Protocol):
    """Define what the collector needs from a source of machine facts."""

    def get_cached_machine_info(self) -> info.MachineInfo:
        """Return the facts. Raise OSError."""
        ...


class PrometheusMachineCollector:
    """Collect the metrics of the machine at each scrape of prometheus_client."""

    def __init__(self, info_provider: MachineInfoProvider) -> None:
        self._info_provider = info_provider

    def describe(self) -> list[Metric]:
        """Return nothing, because the metrics are known only at the time of the scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        error = new_family("machine_scrape_error", "Whether reading the facts of the machine failed.", GAUGE)
        failed = 0
        try:
            machine = self._info_provider.get_cached_machine_info()
        except OSError as err:
            klog.warning_s("Couldn't get machine info", err=err)
            failed = 1
        else:
            yield from _of_machine(machine)
        error.add_sample(error.name, {}, failed)
        yield error


def _of_machine(machine: info.MachineInfo) -> Iterator[Metric]:
    labels = {"machine_id": machine.machine_id, "system_uuid": machine.system_uuid, "boot_id": machine.boot_id}
    for name, (help, value) in _METRICS.items():
        made = new_family(name, help, GAUGE)
        made.add_sample(name, labels, value(machine))
        yield made
    if machine.memory_by_type:
        count = new_family("machine_dimm_count", "Memory modules, by their kind.", GAUGE)
        capacity = new_family("machine_dimm_capacity_bytes", "Bytes of memory modules, by their kind.", GAUGE)
        for kind, modules in machine.memory_by_type.items():
            count.add_sample(count.name, labels | {"type": kind}, modules.dimm_count)
            capacity.add_sample(capacity.name, labels | {"type": kind}, modules.capacity)
        yield from (count, capacity)
    nvm = new_family("machine_nvm_capacity", _NVM_HELP, GAUGE)
    for mode in ("app_direct_mode", "memory_mode"):
        nvm.add_sample(nvm.name, labels | {"mode": mode}, 0)
    yield nvm
