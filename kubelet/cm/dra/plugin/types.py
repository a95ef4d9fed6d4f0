"""Who listens to what plugins tell of their devices.

Go: pkg/kubelet/cm/dra/plugin/types.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kubelet.apis.dra_health.v1alpha1 import api_pb2 as drahealthv1alpha1
from pkg import golang


class StreamHandler(Protocol):
    """Takes the health of devices."""

    def handle_watch_resources_stream(
        self, ctx: golang.Context, stream: Iterator[drahealthv1alpha1.NodeWatchResourcesResponse], plugin_name: str
    ) -> None:
        """Read until the stream ends, which it does with ctx. Called on a thread of the plugin.

        Raises what the stream raises.
        """
        ...
