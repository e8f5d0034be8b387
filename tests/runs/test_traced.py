"""A run's spans and results as OpenTelemetry gets them, kept in memory, and one run against a collector."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from evenhand.core import otel
from evenhand.core.errors import BadResponseError, MissingExtraError
from evenhand.core.otel import Telemetry, load_telemetry
from evenhand.core.types import Completion
from evenhand.runs.runner import RESULT
from support.runs import Workshop
from support.toy import number_of, right_answer

NAME, VALUE, LABEL = (f"gen_ai.evaluation.{each}" for each in ("name", "score.value", "score.label"))


@pytest.fixture(autouse=True)
def _no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "LOGS_ENDPOINT"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)


class Memory:
    """What a run exported."""

    def __init__(self) -> None:
        self.spans, self.events = InMemorySpanExporter(), InMemoryLogRecordExporter()

    def load(self, *, wanted: bool) -> Telemetry | None:
        return Telemetry(self.spans, self.events) if wanted else None

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name.startswith(start)]

    def results(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for each in self.events.get_finished_logs():
            assert each.log_record.event_name == RESULT
            yield each.log_record.span_id or 0, dict(each.log_record.attributes or {})


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    made = Memory()
    monkeypatch.setattr(otel, "load_telemetry", made.load)
    return made


def answer(messages: Any, _params: Any) -> Any:
    odd = {3: Completion("No.", refusal="I decline."), 5: BadResponseError("secret words")}
    return odd.get(number_of(messages)) or right_answer(messages)


async def test_a_run_has_a_span_with_its_samples_and_their_calls_below(workshop: Workshop, memory: Memory) -> None:
    workshop.model(answer)
    await workshop.run(settings={"otel": True}, limit=6)
    (run,) = memory.named("evaluate toy")
    assert run.attributes is not None
    assert run.attributes["evenhand.models"] == ("stub/one",)
    samples, calls = memory.named("sample"), memory.named("chat one")
    assert (len(samples), len(calls)) == (6, 6)
    assert {sample.parent.span_id for sample in samples if sample.parent} == {run.context.span_id}
    assert {call.parent.span_id for call in calls if call.parent} == {sample.context.span_id for sample in samples}


async def test_results_are_events_of_the_sample(workshop: Workshop, memory: Memory) -> None:
    workshop.model(answer)
    await workshop.run(settings={"otel": True}, limit=6)
    ids = {span.context.span_id: (span.attributes or {})["evenhand.sample.id"] for span in memory.named("sample")}
    correct = {ids[span]: about for span, about in memory.results() if about[NAME] == "toy/correct"}
    assert set(correct) == {f"toy/{number:04}" for number in (0, 1, 2, 4)}
    assert {(about[VALUE], about[LABEL]) for about in correct.values()} == {(1.0, "yes")}
    # Neither a refusal nor a failure has a number.
    others = {ids[span]: about for span, about in memory.results() if about[NAME] == "toy"}
    assert {sample: about[LABEL] for sample, about in others.items()} == {"toy/0003": "refused", "toy/0005": "failed"}
    assert not any(VALUE in about for about in others.values())


async def test_scores_of_texts_are_events(workshop: Workshop, memory: Memory) -> None:
    workshop.model(lambda *_: "and they all went home.")
    plan = {"benchmark": "realtoxicity_builtin", "benchmark_options": {"completions": 1}, "scorers": ["builtin"]}
    await workshop.run(settings={"otel": True}, limit=2, **plan)
    values = [about[VALUE] for _, about in memory.results() if about[NAME] == "builtin/toxicity"]
    assert len(values) == 2
    assert all(0 <= value <= 1 for value in values)


async def test_no_text_is_exported(workshop: Workshop, memory: Memory) -> None:
    workshop.model(answer)
    await workshop.run(settings={"otel": True}, limit=6)
    told = [str(span.to_json()) for span in memory.spans.get_finished_spans()]
    told += [each.to_json() for each in memory.events.get_finished_logs()]
    assert not [text for text in told if "Two men came home" in text or "secret words" in text or "I decline" in text]


async def test_without_the_option_nothing_is_traced(workshop: Workshop, memory: Memory) -> None:
    workshop.model(answer)
    await workshop.run(limit=2)
    assert not memory.spans.get_finished_spans()


async def test_a_collector_named_by_the_environment_gets_the_results(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bytes]] = []

    async def take(request: web.Request) -> web.Response:
        seen.append((request.path, await request.read()))
        return web.Response()

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    workshop.model(answer)
    await workshop.run(limit=2)
    await runner.cleanup()
    assert {path for path, _ in seen} == {"/v1/traces", "/v1/logs"}
    logs = [ExportLogsServiceRequest.FromString(body) for path, body in seen if path == "/v1/logs"]
    names = {
        record.event_name
        for each in logs
        for group in each.resource_logs
        for scope in group.scope_logs
        for record in scope.log_records
    }
    assert names == {RESULT}


async def test_a_dead_collector_does_not_harm_the_run(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    workshop.model(answer)
    progress = await workshop.run(limit=2)
    assert progress.statuses == {"graded": 2}


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(MissingExtraError, match=r"\[otel\]"):
        load_telemetry(wanted=True)
