"""Record spans: the duration of each operation, and the operation that it is part of.

Without a configuration this costs next to nothing and imports nothing.

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
