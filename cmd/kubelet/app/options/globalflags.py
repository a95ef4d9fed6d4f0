"""Define the flags that Go's libraries add, so that existing command lines still work.

Go: cmd/kubelet/app/options/globalflags.go, globalflags_linux.go
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pkg.component_base.cli import flag as cliflag

_CADVISOR = "it belongs to cAdvisor, which this kubelet does not contain"

# Each entry holds the flag, its default, and whether the flag is deprecated. None of these flags has an effect.
_CADVISOR_FLAGS = (
    ("housekeeping-interval", "10s", False),
    ("max-housekeeping-interval", "15s", False),
    ("application-metrics-count-limit", "100", True),
    ("boot-id-file", "/proc/sys/kernel/random/boot_id", True),
    ("container-hints", "/etc/cadvisor/container_hints.json", True),
    ("containerd", "/run/containerd/containerd.sock", True),
    ("containerd-namespace", "k8s.io", True),
    ("enable-load-reader", "false", True),
    ("event-storage-age-limit", "default=0", True),
    ("event-storage-event-limit", "default=0", True),
    ("global-housekeeping-interval", "1m0s", True),
    ("log-cadvisor-usage", "false", True),
    ("machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id", True),
    ("storage-driver-buffer-duration", "1m0s", True),
    ("storage-driver-db", "cadvisor", True),
    ("storage-driver-host", "localhost:8086", True),
    ("storage-driver-password", "root", True),
    ("storage-driver-secure", "false", True),
    ("storage-driver-table", "stats", True),
    ("storage-driver-user", "root", True),
)
_BOOLEAN = ("enable-load-reader", "log-cadvisor-usage", "storage-driver-secure")


@dataclass(slots=True)
class GlobalFlags:
    """Hold the values of the flags that concern the process and not the kubelet."""

    # The version is "", "true" or "raw".
    version: str = ""
    help: bool = False
    # This field holds the values of the flags without effect, by name.
    ignored: dict[str, str] = field(default_factory=dict)


class _Ignored:
    """Store the value of a flag that has no effect."""

    def __init__(self, values: dict[str, str], name: str, default: str) -> None:
        self.type = "" if name in _BOOLEAN else "string"
        self.no_opt_default = "true" if name in _BOOLEAN else ""
        self._values, self._name, self._default = values, name, default

    def set(self, text: str) -> None:
        self._values[self._name] = text

    def string(self) -> str:
        return self._values.get(self._name, self._default)


def add_global_flags(fs: cliflag.FlagSet, flags: GlobalFlags) -> None:
    """Add --version, --help and the flags that have no effect."""
    for name, default, deprecated in _CADVISOR_FLAGS:
        usage = "This flag is accepted but has no effect."
        fs.add(name, _Ignored(flags.ignored, name, default), usage, deprecated=_CADVISOR if deprecated else "")
    version = cliflag.Scalar(cliflag.Ref(flags, "version"), "version[=true]", _parse_version, no_opt_default="true")
    fs.add("version", version, "Print the version and quit; --version=raw prints all details.")
    fs.add("help", cliflag.bool_value(cliflag.Ref(flags, "help")), "Print this help and quit.", shorthand="h")


def _parse_version(text: str) -> Any:
    if text == "raw":
        return text
    return "true" if cliflag.parse_bool(text) else ""
