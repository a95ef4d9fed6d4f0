"""Spans: what was done for how long, as part of what. Costs next to nothing, and imports nothing, unless configured.

Go: k8s.io/component-base/tracing
"""

from pkg.component_base.tracing.tracing import NOOP_TRACER_PROVIDER, Attributes, Kind, Span, Tracer, TracerProvider
from pkg.component_base.tracing.utils import new_provider, with_tracing

__all__ = [
    "NOOP_TRACER_PROVIDER",
    "Attributes",
    "Kind",
    "Span",
    "Tracer",
    "TracerProvider",
    "new_provider",
    "with_tracing",
]
