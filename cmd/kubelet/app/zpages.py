"""Shows the configuration in force on the page /configz.

Go: cmd/kubelet/app/server.go (initConfigz, setConfigz)
"""

from __future__ import annotations

from typing import Any

from kubelet.apis import config as kubeletconfig
from kubelet.apis.config import scheme
from pkg import klog
from pkg.component_base import configz

_CONFIGZ_NAME = "kubeletconfig"

# Numbers and switches that are not shown while they are 0 or off, as the API has no pointers for them.
_OMITTED = frozenset(
    (
        "enableContentionProfiling",
        "evictionMaxPodGracePeriod",
        "kernelMemcgNotification",
        "podsPerCore",
        "protectKernelDefaults",
        "readOnlyPort",
        "rotateCertificates",
        "runOnce",
        "serverTLSBootstrap",
        "splitStream",
    )
)


def init_configz(kc: kubeletconfig.KubeletConfiguration) -> None:
    try:
        set_configz(configz.new(_CONFIGZ_NAME), kc)
    except ValueError as err:
        # Only a page is missing then, which another kubelet in this process has.
        klog.error_s(err, "Failed to register kubelet configuration with configz")


def set_configz(config: configz.Config, kc: kubeletconfig.KubeletConfiguration) -> None:
    """Show the configuration that is in force.

    DIVERGES (fault of Go): the page /configz masks the headers of the manifest URL.
    Go: cmd/kubelet/app/server.go, setConfigz: shows them, although the log has them masked.
    Why: they may hold credentials, and more people may see the page than the configuration file.
    Test: test/programs/zpages_test.py:test_credentials_are_hidden
    """
    document = _as_published(scheme.to_versioned(kc))
    if "staticPodURLHeader" in document:
        document["staticPodURLHeader"] = {name: ["<masked>"] for name in document["staticPodURLHeader"]}
    config.set({"kind": scheme.KIND, "apiVersion": scheme.API_VERSION, **document})


def delete_configz() -> None:
    configz.delete(_CONFIGZ_NAME)


def _as_published(document: scheme.Document) -> dict[str, Any]:
    """Without what says nothing."""
    published: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict) and value:
            published[name] = _as_published(value)
        elif value not in ("", [], {}) and (value or name not in _OMITTED):
            published[name] = value
    return published
