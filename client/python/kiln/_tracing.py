"""The caller's trace: what the service does for a call is traced below it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def traced(name: str) -> Iterator[bytes | None]:
    """Gives the ``traceparent`` of W3C Trace Context for a call, or None where there is no trace.

    Where this process has OpenTelemetry's API, the call is a span of the current trace, which the process' own SDK
    exports; where not, the call belongs to the span that ``TRACEPARENT`` names. Imports nothing.
    """
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        yield _inherited()
        return
    with api.get_tracer("kiln").start_as_current_span(name) as span:
        context = span.get_span_context()
        if context.is_valid:
            yield (f"00-{api.format_trace_id(context.trace_id)}-{api.format_span_id(context.span_id)}"
                   f"-{int(context.trace_flags):02x}").encode()
        else:  # the API without an SDK
            yield _inherited()


def _inherited() -> bytes | None:
    return os.environ.get("TRACEPARENT", "").encode() or None
