"""OpenTelemetry traces of the real programs: one trace from the client's command to the runner's last timing, whose
parts add up; every batch is what OpenTelemetry's own protobuf reads; a collector that is away or stalls costs nothing;
nothing is sent by default."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import re
import subprocess
import tempfile
import unittest

from otlp_collector import Collector, Span
from processes import BIN, BUILD, GRAPHS, ROOT, Fleet, environment, wait_for

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

# Reads JSON bodies, a line each, as OpenTelemetry's protobuf. Its JSON has ids in hex, where protobuf's has base64.
READ_AS_PROTOBUF = """
import base64, json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

def with_base64(node):
    if isinstance(node, list):
        return [with_base64(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {key: base64.b64encode(bytes.fromhex(value)).decode() if key in ("traceId", "spanId", "parentSpanId")
            else with_base64(value) for key, value in node.items()}

spans = 0
for line in sys.stdin:
    request = json_format.ParseDict(with_base64(json.loads(line)), ExportTraceServiceRequest())
    for resource in request.resource_spans:
        assert any(each.key == "service.name" and each.value.string_value for each in resource.resource.attributes)
        for scope in resource.scope_spans:
            assert scope.scope.name == "kiln"
            for span in scope.spans:
                assert len(span.trace_id) == 16 and len(span.span_id) == 8 and len(span.parent_span_id) in (0, 8)
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano and span.kind and span.name
                spans += 1
print(spans)
"""


def python_with_opentelemetry() -> pathlib.Path:
    made = subprocess.run([ROOT / "ops" / "python", "traces"], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise unittest.SkipTest("PyPI did not give OpenTelemetry's packages")
    return pathlib.Path(made.stdout.strip()) / "bin" / "python"


def children(spans: list[Span], parent: Span) -> list[Span]:
    return sorted((span for span in spans if span.parent == parent.id), key=lambda span: span.start)


class Traces(unittest.TestCase):
    def setUp(self) -> None:
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.collector = Collector()
        self.stack.callback(self.collector.close)

    def only(self, spans: list[Span], service: str, name: str) -> Span:
        found = [span for span in spans if (span.service, span.name) == (service, name)]
        self.assertEqual(len(found), 1, f"{service} {name}")
        return found[0]

    def assert_contiguous(self, parent: Span, parts: list[Span]) -> None:
        """`parts` follow each other without gaps, from the start of `parent` to its end."""
        self.assertEqual(parts[0].start, parent.start)
        for one, next_one in itertools.pairwise(parts):
            self.assertEqual(one.end, next_one.start, f"{one.name}, {next_one.name}")
        self.assertLessEqual(abs(parts[-1].end - parent.end), 0.01 * (parent.end - parent.start))

    def assert_is_opentelemetry(self) -> None:
        read = subprocess.run([python_with_opentelemetry(), "-c", READ_AS_PROTOBUF],
                              input=b"\n".join(self.collector.bodies) + b"\n", capture_output=True, check=False)
        self.assertEqual(read.returncode, 0, read.stderr.decode()[-2000:])
        self.assertEqual(int(read.stdout), len(self.collector.spans()))

    def test_one_cold_request_is_one_trace_that_adds_up(self) -> None:
        with Fleet(self.folder, "--otlp-endpoint", self.collector.url) as fleet:
            outcome = fleet.compile("linear_ln_gelu.pt2", "--mode", "max-autotune", "--otlp-endpoint",
                                    self.collector.url, TRACEPARENT=f"00-{TRACE}-{CALLER}-01")
            self.assertEqual(outcome, "tuned")
            fleet.stop()  # which sends what is left
            spans = self.collector.spans()
        self.assertEqual({span.trace for span in spans}, {TRACE})
        self.assertEqual(len({span.id for span in spans}), len(spans))
        ids = {span.id: span for span in spans}
        for span in spans:
            self.assertIn(span.parent, ids.keys() | {CALLER}, f"{span.service} {span.name} has a parent")
        self.assertEqual({span.service for span in spans}, {"kiln", "kiln-coordinator", "kiln-worker"})

        root = self.only(spans, "kiln", "kiln compile")
        self.assertEqual(root.parent, CALLER)
        call = self.only(spans, "kiln", "client fetch")
        self.assertEqual([part.name for part in children(spans, root)], ["prepare", "client fetch", "report"])
        self.assert_contiguous(root, children(spans, root))
        phases = children(spans, call)
        self.assertEqual([part.name for part in phases], ["prepare", "normalise", "look_up", "ask", "fetch", "load"])
        self.assert_contiguous(call, phases)

        request = self.only(spans, "kiln-coordinator", "compile")
        ask = self.only(spans, "kiln", "ask")
        self.assertEqual(request.parent, ask.id)
        self.assertEqual(request.attributes["kiln.outcome"], "tuned")
        stages = children(spans, request)
        self.assertEqual([stage.name for stage in stages],
                         ["looking_up", "wait_graph", "planning", "tuning", "storing"])
        self.assert_contiguous(request, stages)

        kernels = children(spans, stages[3])
        self.assertGreater(len(kernels), 1)
        for kernel in kernels:
            parts = children(spans, kernel)
            self.assertEqual(parts[0].name, "queue")
            self.assertEqual([part.name for part in parts].count("publish"), 1)
            leases = [part for part in parts if part.name == "lease"]
            self.assertIn("screen", {lease.attributes["kiln.lease.kind"] for lease in leases})
            jobs = [job for lease in leases for job in children(spans, lease)]
            self.assertEqual({(job.service, job.name) for job in jobs}, {("kiln-worker", "job")})
            work = [span for job in jobs for span in children(spans, job)]
            self.assertLessEqual({"compile", "evaluate"}, {span.name for span in work})
            in_runner = {span.name for each in work for span in children(spans, each)}
            self.assertLessEqual({"verify", "time"}, in_runner)

        # What the parts of the wait leave out is the way to the coordinator and back.
        waited = root.end - root.start
        parts = [part for part in children(spans, root) + phases if part.name not in ("client fetch", "ask")] + stages
        explained = sum(part.end - part.start for part in parts)
        print(f"waited {waited / 1e9:.3f} s, parts {explained / 1e9:.3f} s, {100 * explained / waited:.2f} %, "
              f"{len(spans)} spans, {len(kernels)} kernels")
        self.assertLess(abs(waited - explained), 0.05 * waited)
        self.assert_is_opentelemetry()

    def test_hits_joins_and_requests_of_others(self) -> None:
        with Fleet(self.folder, OTEL_EXPORTER_OTLP_ENDPOINT=self.collector.url,
                   OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20abc",
                   OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test", OTEL_SERVICE_NAME="tuning") as fleet:
            fleet.compile("softmax.pt2", "--mode", "max-autotune")  # whose client has no trace
            fleet.compile("softmax.pt2", "--mode", "max-autotune")
            fleet.compile("softmax.pt2", "--mode", "max-autotune", TRACEPARENT=f"00-{TRACE}-{CALLER}-01")
            fleet.compile("softmax.pt2", "--mode", "max-autotune", TRACEPARENT=f"00-{'ab' * 16}-{CALLER}-00")
            fleet.stop()
            spans = self.collector.spans()
        self.assertEqual(set(self.collector.paths), {"/v1/traces"})
        self.assertEqual({headers["authorization"] for headers in self.collector.headers}, {"Bearer abc"})
        self.assertIn(b'"deployment.environment"', self.collector.bodies[0])
        self.assertEqual({span.service for span in spans}, {"tuning"})
        requests = [span for span in spans if span.name == "compile" and "kiln.outcome" in span.attributes]
        # One that is tuned is worth a trace of its own; a hit is part of its caller's, or nothing.
        self.assertEqual([(span.attributes["kiln.outcome"], span.parent) for span in requests],
                         [("tuned", ""), ("hit", CALLER)])
        self.assertNotIn("ab" * 16, {span.trace for span in spans}, "its caller's trace is not recorded")
        self.assert_is_opentelemetry()

    def test_by_default_nothing_is_sent(self) -> None:
        with Fleet(self.folder) as fleet:
            self.assertEqual(fleet.compile("softmax.pt2", TRACEPARENT=f"00-{TRACE}-{CALLER}-01"), "tuned")
            self.assertIn("kiln_trace_spans_exported_total 0\n", fleet.metrics())
            self.assertIn("kiln_trace_spans_dropped_total 0\n", fleet.metrics())
        self.assertEqual(self.collector.paths, [])

    def test_a_collector_that_stalls_or_is_away_costs_spans_alone(self) -> None:
        for how in ("stalls", "refuses", "is away"):
            with self.subTest(how):
                folder = self.folder / how.replace(" ", "_")
                folder.mkdir()
                collector = Collector()
                collector.stalled, collector.status = how == "stalls", 400
                url = collector.url
                if how == "is away":
                    collector.close()
                variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "50"}
                with Fleet(folder, **variables) as fleet:
                    self.assertEqual(fleet.compile("softmax.pt2", "--mode", "max-autotune", **variables), "tuned")
                    for metrics in (fleet.metrics, fleet.worker_metrics):
                        wait_for(lambda told=metrics: re.search(r"kiln_trace_spans_dropped_total [1-9]", told()),
                                 f"what is dropped is counted where the collector {how}")
                        self.assertIn("kiln_trace_spans_exported_total 0\n", metrics())
                    fleet.stop()
                    self.assertEqual(fleet.coordinator.returncode, 0)
                    self.assertEqual(fleet.worker.returncode, 0)
                if how != "is away":
                    collector.close()

    def test_the_python_client_is_a_span_of_its_process_own_trace(self) -> None:
        python = python_with_opentelemetry()
        program = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
import kiln
trace.set_tracer_provider(TracerProvider())
with trace.get_tracer("app").start_as_current_span("app") as span:
    kiln.Client(sys.argv[1], fallback=False).compile(sys.argv[2])
    print(trace.format_trace_id(span.get_span_context().trace_id))
"""
        with Fleet(self.folder, "--otlp-endpoint", self.collector.url) as fleet:
            libraries = {"PYTHONPATH": str(ROOT / "client" / "python"),
                         "KILN_LIBRARY": str(BUILD / "client" / "libkiln.so")}
            done = subprocess.run([python, "-c", program, fleet.endpoint, GRAPHS / "softmax.pt2"], check=False,
                                  capture_output=True, text=True, env=environment(**libraries), timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            fleet.stop()
        requests = [span for span in self.collector.spans()
                    if span.service == "kiln-coordinator" and span.name == "compile"]
        self.assertEqual([span.trace for span in requests], [done.stdout.strip()])
        self.assertTrue(requests[0].parent, "the span of Client.compile")

    def test_a_variable_that_cannot_be_read_costs_the_trace_and_says_so(self) -> None:
        wrong = {"OTEL_EXPORTER_OTLP_ENDPOINT": self.collector.url, "OTEL_TRACES_SAMPLER": "jaeger_remote"}
        with Fleet(self.folder, **wrong):
            pass
        for log in ("coordinator.log", "worker.log"):
            self.assertIn("OTEL_TRACES_SAMPLER is 'jaeger_remote'; it can be", (self.folder / log).read_text())
        flag = subprocess.run([BIN / "kiln-coordinator", "--data-dir", self.folder / "other", "--otlp-endpoint",
                               "collector:4318"], capture_output=True, text=True, check=False, env=environment())
        self.assertEqual(flag.returncode, 2)
        self.assertIn("--otlp-endpoint is 'collector:4318'; it is the URL of a collector", flag.stderr)
        self.assertEqual(self.collector.paths, [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
