"""Provide a fake SELinux translator."""

from __future__ import annotations

from pkg.api.core import v1
from pkg.volume.util.selinux import SELinuxLabelTranslationError


class FakeSELinuxLabelTranslator:
    """Simulate a node with or without SELinux; "bad" is a level that the node does not know."""

    def __init__(self, enabled: bool) -> None:
        self.enabled = enabled

    def selinux_enabled(self) -> bool:
        return self.enabled

    def selinux_options_to_file_label(self, opts: v1.SELinuxOptions | None) -> str:
        if opts is None:
            return ""
        if opts.level == "bad":
            raise SELinuxLabelTranslationError("no such level")
        return f"{opts.user or 'system_u'}:{opts.role or 'object_r'}:{opts.type or 'container_file_t'}:{opts.level}"
