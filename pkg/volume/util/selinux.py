"""Determine the SELinux labels that volumes are mounted with.

Go: pkg/volume/util/selinux.go, and what it needs of
github.com/opencontainers/selinux/go-selinux
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pkg import features, klog
from pkg.api.core import v1
from pkg.util import procfs

if TYPE_CHECKING:
    from pkg.volume.plugins import Spec, VolumePluginMgr

_SELINUX_FS = "/sys/fs/selinux"
_SELINUX_CONFIG = "/etc/selinux"
# `_CATEGORIES` is the number of categories that a level is chosen from.
_CATEGORIES = 1024


class SELinuxLabelTranslator(Protocol):
    """Define how the SELinux label of files is derived from that of the processes that use them."""

    def selinux_options_to_file_label(self, opts: v1.SELinuxOptions | None) -> str:
        """Return the label, or "" on a node without SELinux. Raise SELinuxLabelTranslationError."""
        ...

    def selinux_enabled(self) -> bool: ...


class SELinuxLabelTranslationError(Exception):
    """Signal that the node's SELinux policy has no label for the options."""


class MultipleSELinuxLabelsError(Exception):
    """Signal that containers of a pod use one volume with different labels."""

    def __init__(self, labels: list[str]) -> None:
        super().__init__(f"multiple SELinux labels found: {','.join(labels)}")
        self.labels = labels


@dataclass(frozen=True, slots=True)
class SELinuxLabelInfo:
    """Hold the SELinux labels of a pod's volume."""

    # `selinux_mount_label` is the label for the mount, or "" if the volume must not be mounted with a label.
    selinux_mount_label: str = ""
    # `selinux_process_label` is the label that the container runtime uses for the pod in any case.
    selinux_process_label: str = ""
    plugin_supports_selinux_context_mount: bool = False


class Translator:
    """Translate labels by the node's SELinux policy. A test sets both directories to its own."""

    def __init__(self, selinux_fs: str = _SELINUX_FS, config: str = _SELINUX_CONFIG) -> None:
        self._selinux_fs = Path(selinux_fs)
        self._config = Path(config)

    def selinux_enabled(self) -> bool:
        return (self._selinux_fs / "enforce").exists()

    def selinux_options_to_file_label(self, opts: v1.SELinuxOptions | None) -> str:
        if opts is None or not (opts.user or opts.role or opts.type or opts.level) or not self.selinux_enabled():
            return ""
        context = self._default_file_context().split(":", 3)
        if len(context) < 3:
            raise SELinuxLabelTranslationError("the SELinux policy has no context for container files")
        # The labels of processes and files share only user and level. A level that the pod does not set is random, as
        # in the runtime.
        level = opts.level or _random_level()
        return ":".join([opts.user or context[0], context[1], context[2], level])

    def _default_file_context(self) -> str:
        try:
            policy = _settings(self._config / "config").get("SELINUXTYPE", "targeted")
            contexts = _settings(self._config / policy / "contexts" / "lxc_contexts")
        except OSError as err:
            raise SELinuxLabelTranslationError(f"cannot read the SELinux policy: {err}") from err
        return contexts.get("file", "")


def supports_selinux_context_mount(volume_spec: Spec, volume_plugin_mgr: VolumePluginMgr) -> bool:
    """Report whether the volume's plugin can mount the volume with a label."""
    try:
        plugin = volume_plugin_mgr.find_plugin_by_spec(volume_spec)
    except ValueError:
        return False
    return plugin.supports_selinux_context_mount(volume_spec)


def volume_supports_selinux_mount(volume_spec: Spec) -> bool:
    """Report whether the volume's access modes allow it to be mounted with one label for all its users."""
    if volume_spec.persistent_volume is None:
        return False
    if features.feature_gate.enabled(features.SELINUX_MOUNT):
        return True
    return volume_spec.persistent_volume.spec.access_modes == [v1.READ_WRITE_ONCE_POD]


def add_selinux_mount_option(options: list[str], selinux_context: str) -> list[str]:
    """Return the options with the label appended. The label is quoted, because it may contain a comma."""
    return [*options, f"context={klog.quote(selinux_context)}"]


def get_mount_selinux_label(
    volume_spec: Spec,
    effective_selinux_container_labels: list[v1.SELinuxOptions],
    pod_security_context: v1.PodSecurityContext | None,
    volume_plugin_mgr: VolumePluginMgr,
    selinux_translator: SELinuxLabelTranslator,
) -> SELinuxLabelInfo:
    """Return the labels for the volume, whatever its access modes are.

    Raise MultipleSELinuxLabelsError or SELinuxLabelTranslationError.
    """
    if not selinux_translator.selinux_enabled():
        return SELinuxLabelInfo()
    supported = supports_selinux_context_mount(volume_spec, volume_plugin_mgr)
    labels = {_label(selinux_translator, options) for options in effective_selinux_container_labels}
    if len(labels) > 1:
        raise MultipleSELinuxLabelsError(sorted(labels))
    if not labels:
        return SELinuxLabelInfo(plugin_supports_selinux_context_mount=supported)
    label = labels.pop()
    recursive = (
        pod_security_context is not None
        and pod_security_context.se_linux_change_policy == v1.SE_LINUX_CHANGE_POLICY_RECURSIVE
    )
    return SELinuxLabelInfo(
        selinux_mount_label=label if supported and not recursive else "",
        selinux_process_label=label,
        plugin_supports_selinux_context_mount=supported,
    )


def _label(translator: SELinuxLabelTranslator, options: v1.SELinuxOptions) -> str:
    try:
        return translator.selinux_options_to_file_label(options)
    except SELinuxLabelTranslationError as err:
        message = f"failed to construct SELinux label from context {options}: {err}"
        raise SELinuxLabelTranslationError(message) from err


def _settings(path: Path) -> dict[str, str]:
    """Return the `name = value` lines of a file."""
    settings: dict[str, str] = {}
    for line in procfs.lines(path):
        name, separator, value = line.partition("=")
        if separator and not line.lstrip().startswith(("#", ";")):
            settings[name.strip()] = value.strip().strip('"')
    return settings


def _random_level() -> str:
    low, high = sorted(random.sample(range(_CATEGORIES), 2))
    return f"s0:c{low},c{high}"
