"""Read pods from a URL periodically.

Go: pkg/kubelet/config/http.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubelet import events
from kubelet import types as kubetypes
from kubelet.config import common, notes
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.util import wait
from pkg.client_go.tools import record
from pkg.golang import net

# `TIMEOUT` is the time, in seconds, for a whole request.
TIMEOUT = 10.0
# `_QUOTED` is the number of bytes that a message quotes from a response that could not be parsed.
_QUOTED = 200


class SourceURLError(Exception):
    """Signal that the URL could not be read, or that its response could not be used."""


def new_source_url(
    ctx: golang.Context,
    url: str,
    header: Mapping[str, Sequence[str]],
    node_name: str,
    period: float,
    updates: golang.Channel[kubetypes.PodUpdate],
    recorder: record.EventRecorder,
    manifest_notes: notes.ManifestNotes | None = None,
) -> SourceURL:
    """Start a thread that reads the URL every `period` seconds until ctx ends."""
    source = SourceURL(url, header, node_name, updates, recorder, manifest_notes)
    klog.v(1).info_s("Watching URL", URL=net.redacted(url))
    golang.go(wait.until, lambda: source.run(ctx), period, ctx, name="config-url")
    return source


class SourceURL:
    """Read pods from one URL. Only one thread may use the object."""

    def __init__(
        self,
        url: str,
        header: Mapping[str, Sequence[str]],
        node_name: str,
        updates: golang.Channel[kubetypes.PodUpdate],
        recorder: record.EventRecorder,
        manifest_notes: notes.ManifestNotes | None = None,
    ) -> None:
        self._url = url
        self._shown = net.redacted(url)
        self._header = {name: ", ".join(values) for name, values in header.items()}
        self._node_name = node_name
        self._updates = updates
        self._recorder = recorder
        self._notes = manifest_notes or notes.ManifestNotes()
        # `_fault` is the fault in the data that was last decoded, or an empty string.
        self._fault = ""
        self._data = b""
        self._failure_logs = 0

    def run(self, ctx: golang.Context) -> None:
        """Read the URL once. Log a failure, but only verbosely after several failures in a row."""
        try:
            self.extract_from_url(ctx)
        except golang.ContextError:
            return
        except SourceURLError as err:
            self._note(str(err))
            if self._failure_logs < 3:
                klog.info_s("Failed to read pods from URL", err=err)
            elif self._failure_logs == 3:
                klog.info_s("Failed to read pods from URL. Dropping verbosity of this message to V(4)", err=err)
            else:
                klog.v(4).info_s("Failed to read pods from URL", err=err)
            self._failure_logs += 1
            return
        self._note(self._fault)
        if self._failure_logs > 0:
            klog.info_s("Successfully read pods from URL")
            self._failure_logs = 0

    def _note(self, fault: str) -> None:
        """Store the current fault of the URL; an empty text means that there is none."""
        self._notes.replace(self._shown, [fault] if fault else [])

    def _apply_defaults(self, pod: v1.Pod) -> None:
        common.apply_defaults(pod, self._url, False, self._node_name)

    def extract_from_url(self, ctx: golang.Context) -> None:
        """Read the URL and send its pods, unless it returned the same bytes as before.

        Raise SourceURLError if the URL cannot be read or its response cannot be used.
        """
        data = self._fetch(ctx)
        if not data:
            self._send(ctx, [])  # The empty update makes the source count as seen.
            raise SourceURLError(f"zero-length data received from {self._shown}")
        if data == self._data:
            return
        try:
            unknown: common.UnknownFields = {}
            pods = self._decode(data, unknown)
        except SourceURLError as err:
            self._data, self._fault = data, str(err)
            self._report(err)
            raise
        self._notes.replace_unknown_fields(unknown)
        self._send(ctx, pods)
        self._data, self._fault = data, ""

    def _decode(self, data: bytes, unknown: common.UnknownFields) -> list[v1.Pod]:
        try:
            return [common.try_decode_single_pod(data, self._apply_defaults, unknown)]
        except common.InvalidPodError as err:
            raise SourceURLError(f"{self._shown}: {err}") from err
        except common.NotParsedError as err:
            single_pod_err = str(err)
        try:
            return common.try_decode_pod_list(data, self._apply_defaults, unknown)
        except common.InvalidPodError as err:
            raise SourceURLError(f"{self._shown}: {err}") from err
        except common.NotParsedError as err:
            quoted = data[:_QUOTED].decode(errors="replace")
            raise SourceURLError(
                f"{self._shown}: received '{quoted}', but couldn't parse as "
                f"single ({single_pod_err}) or multiple pods ({err})"
            ) from err

    def _fetch(self, ctx: golang.Context) -> bytes:
        # This module is imported lazily because few kubelets have a manifest URL.
        from kubelet.config import fetch

        try:
            answer = fetch.get(ctx, self._url, self._header, TIMEOUT, common.MAX_CONFIG_LENGTH)
        except (OSError, ValueError) as err:
            raise SourceURLError(f"{self._shown}: {err}") from err
        if answer.status != 200:
            raise SourceURLError(f"{self._shown}: {answer.status} {answer.reason}")
        return answer.body

    def _report(self, err: SourceURLError) -> None:
        """Record an event of the node about pods that cannot be used.

        DIVERGES (safer): the kubelet records an event of the node if it cannot use the response of the manifest URL.
        Go: pkg/kubelet/config/http.go, (*sourceURL).run: the Go kubelet only logs the fault.
        Why: a user who misses the pod looks at the events of the node first.
        Test: http_test.py:test_extract_invalid_pods
        """
        node = v1.ObjectReference(kind="Node", name=self._node_name, uid=types.UID(self._node_name))
        self._recorder.event(
            node, v1.EVENT_TYPE_WARNING, events.FAILED_VALIDATION, f"Error reading static pod manifest {err}"
        )

    def _send(self, ctx: golang.Context, pods: list[v1.Pod]) -> None:
        self._updates.send(kubetypes.PodUpdate(pods, kubetypes.SET, kubetypes.HTTP_SOURCE), ctx)
