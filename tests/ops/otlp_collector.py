"""A collector of OpenTelemetry's traces for tests: keeps what is exported to it over HTTP, as JSON."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any, NamedTuple

from ports import free_port


class Span(NamedTuple):
    service: str
    name: str
    trace: str
    id: str
    parent: str  # empty: a root
    start: int  # ns
    end: int
    attributes: dict[str, Any]
    links: list[str]  # ids of spans
    error: str


def value_of(value: dict[str, Any]) -> Any:
    kind, held = next(iter(value.items()))
    return int(held) if kind == "intValue" else held


def attributes_of(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: value_of(pair["value"]) for pair in pairs}


class Collector:
    """Answers each request with `status`; while `stalled`, with nothing."""

    def __init__(self) -> None:
        self.status = 200
        self.stalled = False
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._closing = threading.Event()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.paths.append(self.path)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                if collector.stalled:
                    collector._closing.wait(60)
                    return
                if collector.status == 200:
                    collector.bodies.append(body)
                self.send_response(collector.status)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def spans(self) -> list[Span]:
        found = []
        for body in list(self.bodies):
            for of_resource in json.loads(body)["resourceSpans"]:
                service = attributes_of(of_resource["resource"]["attributes"])["service.name"]
                for scope in of_resource["scopeSpans"]:
                    for span in scope["spans"]:
                        found.append(Span(
                            service, span["name"], span["traceId"], span["spanId"], span.get("parentSpanId", ""),
                            int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]),
                            attributes_of(span.get("attributes", [])),
                            [link["spanId"] for link in span.get("links", [])],
                            span.get("status", {}).get("message", "")))
        return found
