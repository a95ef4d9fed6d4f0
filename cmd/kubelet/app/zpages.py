"""Show the effective configuration on the page /configz.

Go: cmd/kubelet/app/server.go (initConfigz, setConfigz)
"""

from __future__ import annotations

from typing import Any

from kubelet.apis import config as kubeletconfig
from kubelet.apis.config import scheme
from pkg import klog
from pkg.component_base import configz

_CONFIGZ_NAME = "kubeletconfig"

# The page omits these numbers and switches while they are 0 or off, because the API has no pointers for them.
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
        # Another kubelet in this process already has the page, and this kubelet works without it.
        klog.error_s(err, "Failed to register kubelet configuration with configz")


def set_configz(config: configz.Config, kc: kubeletconfig.KubeletConfiguration) -> None:
    """Publish the effective configuration.

    DIVERGES (fault of Go): the page /configz masks the headers of the manifest URL.
    Go: cmd/kubelet/app/server.go, setConfigz: the Go kubelet shows them, although its log masks them.
    Why: the headers may contain credentials, and more people may see the page than the configuration file.
    Test: test/programs/zpages_test.py:test_credentials_are_hidden
    """
    document = _as_published(scheme.to_versioned(kc))
    if "staticPodURLHeader" in document:
        document["staticPodURLHeader"] = {name: ["<masked>"] for name in document["staticPodURLHeader"]}
    config.set({"kind": scheme.KIND, "apiVersion": scheme.API_VERSION, **document})


def delete_configz() -> None:
    configz.delete(_CONFIGZ_NAME)


def _as_published(document: scheme.Document) -> dict[str, Any]:
    """Return the document without its empty values."""
    published: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, dict) and value:
            published[name] = _as_published(value)
        elif value not in ("", [], {}) and (value or name not in _OMITTED):
            published[name] = value
    return published
