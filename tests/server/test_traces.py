"""Traces: which spans a request has, what they say, what they never say, and that they reach a collector."""

import gzip
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from evenhand.core.errors import MissingExtraError, PlanError
from evenhand.server.telemetry.events import Traces, load_traces
from support.guard_server import CLEAN, RUDE, Guarding, Served, route, streamed
from support.server import chat, raw, reply_with

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.fixture(autouse=True)
def _no_collector(monkeypatch: pytest.MonkeyPatch):
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tracing(guarding: Guarding) -> Callable[..., Any]:
    """`guard, spans = await tracing(...)`: a server whose spans stay in memory."""

    async def start(*arguments: Any, **config: Any) -> tuple[Served, Callable[[], list[ReadableSpan]]]:
        exporter = InMemorySpanExporter()
        guard = await guarding(*arguments, **config)
        traces = guard.server.traces = Traces(exporter)

        def spans() -> list[ReadableSpan]:
            traces._provider.force_flush()
            return sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

        return guard, spans

    return start


def named(spans: list[ReadableSpan], start: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name.startswith(start)]


async def test_a_request_has_a_span_with_its_checks_and_model_calls_below(serve, tracing):
    behind = await serve(chat(RUDE), chat(CLEAN))
    guard, spans = await tracing(route(behind.url))

    await guard.chat(headers={"traceparent": CALLER})
    await guard.told()

    request, *below = spans()
    assert request.name == "POST /v1/chat/completions"
    assert request.kind.name == "SERVER"
    assert request.parent is not None and f"{request.parent.span_id:016x}" in CALLER
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 200
    assert (request.attributes["evenhand.route"], request.attributes["evenhand.action"]) == ("guarded", "revised")
    assert request.attributes["evenhand.request.id"] == guard.event.id
    assert {span.context.trace_id for span in below} == {request.context.trace_id}
    assert {span.parent.span_id for span in below if span.parent} <= {span.context.span_id for span in spans()}

    calls, checks = named(below, "chat "), named(below, "check ")
    assert len(calls) == len(behind.requests) == 2
    for call in calls:
        assert call.kind.name == "CLIENT" and call.attributes is not None
        assert call.name == "chat behind"
        assert call.attributes["gen_ai.operation.name"] == "chat"
        assert (call.attributes["gen_ai.provider.name"], call.attributes["gen_ai.request.model"]) == (
            "openai",
            "behind",
        )
        assert call.attributes["gen_ai.usage.input_tokens"] > 0
        assert call.attributes["gen_ai.usage.output_tokens"] > 0
    labels = [span.attributes["gen_ai.evaluation.score.label"] for span in checks if span.attributes]
    assert sorted(labels) == ["failed", "passed"]


async def test_the_models_endpoint_gets_the_span_of_its_call_and_no_other_header_of_the_client(serve, tracing):
    behind = await serve(chat(CLEAN))
    guard, spans = await tracing(route(behind.url))

    await guard.chat(headers={"traceparent": CALLER, "tracestate": "vendor=secret", "baggage": "user=jo"})

    (call,) = named(spans(), "chat ")
    (seen,) = behind.requests
    assert seen.headers["traceparent"] == f"00-{call.context.trace_id:032x}-{call.context.span_id:016x}-01"
    assert not {"tracestate", "baggage"} & {name.lower() for name in seen.headers}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("faults", [0, 1, 2])
async def test_a_call_says_how_often_it_was_repeated(serve, tracing, stream: bool, faults: int):
    behind = await serve(*[raw(b"", 500)] * faults, streamed([CLEAN]) if stream else chat(CLEAN))
    guard, spans = await tracing(route(behind.url, retries=1))

    await guard.chat(stream=stream)
    await guard.told()

    assert [call.attributes["evenhand.retries"] for call in named(spans(), "chat ")] == [min(faults, 1)]


async def test_without_traces_no_header_of_the_client_is_passed_on(serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    await guard.chat(headers={"traceparent": CALLER})

    assert "traceparent" not in {name.lower() for name in behind.requests[0].headers}


@pytest.mark.parametrize(
    "sent", ["", "00-0-0-0", "x" * 5_000, CALLER.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32)]
)
async def test_a_traceparent_that_is_none_begins_a_new_trace(serve, tracing, sent: str):
    behind = await serve(chat(CLEAN))
    guard, spans = await tracing(route(behind.url))

    answer = await guard.chat(headers={"traceparent": sent})

    assert answer.status == 200
    assert spans()[0].parent is None


async def test_a_streams_calls_are_traced_too(serve, tracing):
    behind = await serve(streamed(["The weather ", "is mild."]))
    guard, spans = await tracing(route(behind.url))

    await guard.chat(stream=True)
    await guard.told()

    (call,) = named(spans(), "chat ")
    assert call.attributes is not None
    assert (call.attributes["gen_ai.usage.input_tokens"], call.attributes["gen_ai.usage.output_tokens"]) == (20, 5)
    assert call.attributes["gen_ai.request.stream"] is True
    assert call.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert f"{call.context.span_id:016x}" in behind.requests[0].headers["traceparent"]
    assert named(spans(), "check ")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_route_without_checks_is_traced(serve, tracing, stream: bool):
    behind = await serve(streamed([CLEAN]) if stream else chat(CLEAN))
    guard, spans = await tracing(route(behind.url, method="default", evaluators=[], policy="flag"))

    await guard.chat(stream=stream)
    await guard.told()

    assert [span.name for span in spans()] == ["POST /v1/chat/completions", "chat behind"]


async def test_embeddings_are_traced(serve, tracing):
    data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
    behind = await serve(reply_with({"data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}}))
    guard, spans = await tracing(route(behind.url))

    await guard.post("/v1/embeddings", {"model": "guarded", "input": "Hello?"})
    await guard.told()

    request, call = spans()
    assert (request.name, call.name) == ("POST /v1/embeddings", "embeddings behind")
    assert call.attributes is not None
    assert call.attributes["gen_ai.operation.name"] == "embeddings"
    assert call.attributes["gen_ai.usage.input_tokens"] == 7


async def test_the_judges_calls_are_told_apart(serve, tracing):
    behind = await serve(chat(CLEAN))
    guard, spans = await tracing(route(behind.url, method="default", evaluators=["bias"], judge="openai/critic"))

    await guard.chat()

    answer, judged = named(spans(), "chat ")[:2]
    (check,) = named(spans(), "check bias")
    assert (answer.name, judged.name) == ("chat behind", "chat critic")
    assert judged.parent == check.context
    assert answer.attributes is not None and judged.attributes is not None
    assert (answer.attributes["evenhand.role"], judged.attributes["evenhand.role"]) == ("answer", "judge")


async def test_no_span_has_texts_keys_or_addresses(serve, tracing):
    behind = await serve(chat(RUDE), chat(CLEAN))
    guard, spans = await tracing(route(behind.url))

    await guard.chat("My secret number is 4711", headers={"Authorization": "Bearer evh-abc"})

    told = " ".join(span.to_json() for span in spans())
    for text in ("4711", "worthless", "weather", "evh-abc", "127.0.0.1"):
        assert text not in told


async def test_a_failing_endpoint_is_an_error_of_call_and_request(serve, tracing):
    behind = await serve(lambda request: _broken())
    guard, spans = await tracing(route(behind.url))

    await guard.chat()
    await guard.told()

    request, call = spans()
    for span in (request, call):
        assert span.status.status_code.name == "ERROR"
    assert request.attributes is not None and request.attributes["http.response.status_code"] == 502


async def _broken() -> web.Response:
    return web.Response(status=500, text="no")


async def test_a_tool_call_is_no_error(serve, tracing):
    behind = await serve(chat("", tool_calls=[TOOL_CALL]))
    guard, spans = await tracing(route(behind.url))

    await guard.chat(tools=[{"type": "function", "function": {"name": "look", "parameters": {}}}])

    (call,) = named(spans(), "chat ")
    assert call.status.status_code.name == "UNSET"
    assert call.attributes is not None and "gen_ai.usage.input_tokens" in call.attributes


async def test_spans_reach_a_collector_that_the_environment_names(
    serve, guarding: Guarding, monkeypatch: pytest.MonkeyPatch
):
    received: list[ExportTraceServiceRequest] = []

    async def collect(request: web.Request) -> web.Response:
        data = await request.read()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        received.append(ExportTraceServiceRequest.FromString(data))
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", collect)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{runner.addresses[0][1]}")
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    await guard.chat()
    await guard.server.close()
    await runner.cleanup()

    spans = [
        (group.resource, span)
        for request in received
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    assert {"POST /v1/chat/completions", "chat behind", "check toxicity"} == {span.name for _, span in spans}
    names = {each.key: each.value.string_value for each in spans[0][0].attributes}
    assert names["service.name"] == "evenhand"


def test_without_a_wish_there_are_no_traces(monkeypatch: pytest.MonkeyPatch):
    assert load_traces(wanted=False) is None

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert load_traces(wanted=True) is None


def test_a_server_without_traces_does_not_import_opentelemetry():
    code = (
        "import sys, asyncio\n"
        "from evenhand.server.config import make_config\n"
        "from evenhand.server.process import ServeOptions, check\n"
        "check(ServeOptions(make_config({'routes': {'a': {'model': 'fake/x'}}})))\n"
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)\n"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_cannot_be_traced_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(PlanError, match="http/protobuf"):
        load_traces(wanted=True)

    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtraError, match="otel"):
        load_traces(wanted=True)

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    assert load_traces(wanted=False) is None
    assert "no traces" in caplog.text
