"""From where the kubelet of a root directory has its pods, as it notes there when it starts.

`kubelet orphans` removes what is nobody's, and asks those for pods whom its own flags name. With other flags than the
kubelet's it would ask others, or make other uids for the same manifests, and take pods for orphans that are wanted.

Go: none
"""

from __future__ import annotations

import json
from pathlib import Path

from pkg import klog
from pkg.component_helpers.node import util as nodeutil
from pkg.util import atomicfile

from . import options

FILE = "pod_sources"


class OtherSourcesError(Exception):
    """The kubelet has other pods than these flags tell of."""


def note(server: options.KubeletServer) -> None:
    """Have later commands know. A full disk keeps no kubelet from its work."""
    path = _path(server)
    try:
        atomicfile.write(path, json.dumps(_sources(server), indent=2).encode())
    except OSError as err:
        klog.error_s(err, "Failed to note where pods come from", path=path)


def check(server: options.KubeletServer) -> None:
    """Raises OtherSourcesError unless the last kubelet had no more sources than these, or never noted them.

    Also OSError and ValueError, when what it has noted cannot be read.
    """
    path = _path(server)
    try:
        noted = json.loads(path.read_bytes())
    except FileNotFoundError:
        return
    given = _sources(server)
    others = [name for name, value in noted.items() if value and given.get(name) != value]
    if others:
        raise OtherSourcesError(f"it was started with another {', another '.join(others)}, as {path} says")


def _path(server: options.KubeletServer) -> Path:
    return Path(server.kubelet_flags.root_directory, FILE)


def _sources(server: options.KubeletServer) -> dict[str, str | bool]:
    """By what they are called in the configuration, where they are in it."""
    flags, kc = server.kubelet_flags, server.kubelet_configuration
    return {
        # It is a part of the uids of pods from files.
        "node name": nodeutil.get_hostname(flags.hostname_override),
        # Another kubeconfig may lead to the same server.
        "kubeconfig": bool(flags.kube_config),
        "staticPodPath": kc.static_pod_path,
        "staticPodURL": kc.static_pod_url,
    }
