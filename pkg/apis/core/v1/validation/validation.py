"""Validate the options of requests for a pod's log.

Go: pkg/apis/core/v1/validation/validation.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.apimachinery.util.validation import field

_NEGATIVE = "must be greater than or equal to 0"
_NOT_POSITIVE = "must be greater than 0"


def validate_pod_log_options(opts: v1.PodLogOptions) -> field.ErrorList:
    """Return all errors in the options."""
    errs = field.ErrorList()
    if opts.tail_lines is not None and opts.tail_lines < 0:
        errs.append(field.invalid(field.Path("tailLines"), opts.tail_lines, _NEGATIVE))
    if opts.limit_bytes is not None and opts.limit_bytes < 1:
        errs.append(field.invalid(field.Path("limitBytes"), opts.limit_bytes, _NOT_POSITIVE))
    if opts.since_seconds is not None and opts.since_time is not None:
        errs.append(field.forbidden(field.Path(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    elif opts.since_seconds is not None and opts.since_seconds < 1:
        errs.append(field.invalid(field.Path("sinceSeconds"), opts.since_seconds, _NOT_POSITIVE))
    errs.extend(_validate_stream(opts))
    return errs


def _validate_stream(opts: v1.PodLogOptions) -> field.ErrorList:
    errs = field.ErrorList()
    if opts.stream is None:
        return errs
    valid = [v1.LOG_STREAM_STDOUT, v1.LOG_STREAM_STDERR, v1.LOG_STREAM_ALL]
    if opts.stream not in valid:
        errs.append(field.not_supported(field.Path("stream"), opts.stream, valid))
    if opts.stream != v1.LOG_STREAM_ALL and opts.tail_lines is not None:
        detail = "`tailLines` and specific `stream` are mutually exclusive for now"
        errs.append(field.forbidden(field.Path(""), detail))
    return errs
