"""Define the receiver of what plugins report about their devices.

Go: pkg/kubelet/cm/dra/plugin/types.go
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kubelet.apis.dra_health.v1alpha1 import api_pb2 as drahealthv1alpha1
from pkg import golang


class StreamHandler(Protocol):
    """Define the receiver of devices' health."""

    def handle_watch_resources_stream(
        self, ctx: golang.Context, stream: Iterator[drahealthv1alpha1.NodeWatchResourcesResponse], plugin_name: str
    ) -> None:
        """Read until the stream ends, which happens at the latest when `ctx` ends.

        The method runs on a thread of the plugin. Raise what the stream raises.
        """
        ...
