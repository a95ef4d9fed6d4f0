"""Load the configuration from a file.

Go: pkg/kubelet/kubeletconfig/configfiles/configfiles.go
"""

from __future__ import annotations

from pathlib import Path

from kubelet.apis.config import KubeletConfiguration, kubelet_configuration_path_refs, scheme
from kubelet.kubeletconfig.util import codec


class FsLoader:
    """Load one file. `kubelet_file` must be an absolute path."""

    def __init__(self, kubelet_file: str) -> None:
        self._kubelet_file = Path(kubelet_file)

    def load(self) -> codec.Decoded:
        """Return the configuration with defaults and absolute paths. Raise ValueError or OSError."""
        decoded = codec.decode_kubelet_configuration(self._read())
        _resolve_relative_paths(decoded.configuration, self._kubelet_file.parent)
        return decoded

    def load_into_json(self) -> scheme.LenientDocument:
        """Return only the fields of a drop-in, checked but without defaults. Raise ValueError or OSError."""
        return codec.decode_kubelet_configuration_into_json(self._read())

    def _read(self) -> bytes:
        try:
            data = self._kubelet_file.read_bytes()
        except OSError as err:
            raise OSError(f'failed to read kubelet config file "{self._kubelet_file}", error: {err}') from err
        if not data:
            raise ValueError(f'kubelet config file "{self._kubelet_file}" was empty')
        return data


def _resolve_relative_paths(kc: KubeletConfiguration, root: Path) -> None:
    for struct, name in kubelet_configuration_path_refs(kc):
        value: str = getattr(struct, name)
        if value:
            setattr(struct, name, value if value.startswith("/") else str(root / value))
