"""Metrics as Prometheus reads them: parsed by its own package, from a real server."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from evenhand.core.types import Usage
from evenhand.guards.types import Check
from evenhand.server.access import auth_middleware
from evenhand.server.config import LimitsConfig
from evenhand.server.limits import ServerLimits
from evenhand.server.telemetry import metrics as metrics_module
from evenhand.server.telemetry.audit import AuditLog
from evenhand.server.telemetry.events import Event, Events
from evenhand.server.telemetry.metrics import Metrics, load_metrics, routes, shared_counts
from evenhand.web.keys import Auth, KeyConfig, new_key
from support.small_app import serving

Labels = Mapping[str, str]
EVENT = Event(
    "r1",
    0.0,
    "chat",
    "/v1/chat/completions",
    action="revised",
    before=(Check("toxicity", 0.7, 0.1, False),),
    after=(Check("toxicity", 0.04, 0.1, True), Check("bias", None, None, True, problem="not read")),
    stages={"answer": 0.2, "total": 0.7},
    usage=Usage(calls=3, prompt_tokens=100, completion_tokens=40, retries=1, cost=0.25),
)


async def scrape(metrics: Metrics | None) -> dict[str, list[tuple[Labels, float]]]:
    async with (
        serving(routes(metrics)) as (url, _),
        aiohttp.ClientSession() as session,
        session.get(f"{url}/metrics") as response,
    ):
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await response.text()
    found: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def counting(*names: str) -> Metrics:
    metrics = load_metrics()
    assert metrics is not None
    metrics.set_routes(names)
    return metrics


async def test_a_request_is_counted_in_all_its_sides():
    metrics = counting("chat")
    metrics(replace(EVENT, late=True, stream=True, first_segment=0.3))
    metrics(replace(EVENT, action="passed", status=502, upstream_error="503", usage=Usage(cost=None)))

    found = await scrape(metrics)

    where = {"route": "chat", "endpoint": "/v1/chat/completions"}
    assert found["evenhand_requests_total"] == [
        ({**where, "status": "200", "action": "revised"}, 1),
        ({**where, "status": "502", "action": "passed"}, 1),
    ]
    assert found["evenhand_late_total"] == [({"route": "chat"}, 1)]
    scored = {"route": "chat", "check": "toxicity"}
    assert found["evenhand_check_score_sum"] == [
        ({**scored, "when": "before"}, 1.4),
        ({**scored, "when": "after"}, 0.08),
    ]
    assert ({**scored, "when": "after", "le": "0.05"}, 2) in found["evenhand_check_score_bucket"]
    assert found["evenhand_checks_failed_total"] == [({**scored, "when": "before"}, 2)]
    assert found["evenhand_checks_unscored_total"] == [({"route": "chat", "check": "bias"}, 2)]
    assert ({"route": "chat", "stage": "answer"}, 2) in found["evenhand_stage_seconds_count"]
    assert found["evenhand_first_segment_seconds_sum"] == [({"route": "chat"}, 0.3)]
    assert found["evenhand_upstream_errors_total"] == [({"route": "chat", "kind": "503"}, 1)]
    assert found["evenhand_model_calls_total"] == [({"route": "chat"}, 3)]
    assert found["evenhand_model_retries_total"] == [({"route": "chat"}, 1)]
    assert ({"route": "chat", "kind": "completion"}, 40) in found["evenhand_tokens_total"]
    assert found["evenhand_cost_total"] == [({"route": "chat"}, 0.25)]
    assert found["evenhand_unpriced_total"] == [({"route": "chat"}, 1)]
    assert "process_resident_memory_bytes" in found


async def test_the_first_segment_is_no_stage():
    metrics = counting("chat")
    metrics(replace(EVENT, stages={"answer": 0.2, "first_segment": 0.1}, first_segment=0.1))

    found = await scrape(metrics)

    assert found["evenhand_stage_seconds_count"] == [({"route": "chat", "stage": "answer"}, 1)]


async def test_a_score_that_is_no_number_does_not_spoil_the_sum():
    metrics = counting("chat")
    metrics(EVENT)
    metrics(replace(EVENT, before=(Check("toxicity", float("nan"), 0.1, False),), after=()))

    found = await scrape(metrics)

    assert ({"route": "chat", "check": "toxicity", "when": "before"}, 0.7) in found["evenhand_check_score_sum"]
    assert ({"route": "chat", "check": "toxicity"}, 1) in found["evenhand_checks_unscored_total"]


async def test_what_clients_send_never_becomes_a_label():
    metrics = counting("chat")
    for number in range(50):
        made_up = f"made-up-{number}"
        metrics(
            replace(
                EVENT, route=made_up, endpoint=made_up, action=made_up, upstream_error=made_up, stages={made_up: 1.0}
            )
        )

    found = await scrape(metrics)

    labels = {value for samples in found.values() for sample, _ in samples for value in sample.values()}
    assert not any("made-up" in value for value in labels)
    assert found["evenhand_requests_total"] == [
        ({"route": "other", "endpoint": "other", "status": "200", "action": "other"}, 50)
    ]


async def test_queues_and_losses_are_read_when_prometheus_asks(tmp_path: Path):
    metrics = counting()
    limits = ServerLimits(LimitsConfig())
    events = Events()
    audit = AuditLog(tmp_path / "audit.sqlite")
    metrics.watch_limits(limits)
    metrics.watch_losses(events, audit)
    events.failures, audit.dropped = 7, 8

    async with limits.gate.turn():
        found = await scrape(metrics)
    audit.close()

    assert found["evenhand_in_flight"] == [({}, 1)]
    assert found["evenhand_waiting"] == [({}, 0)]
    assert found["evenhand_turned_away"] == [({}, 0)]
    assert found["evenhand_events_lost"] == [({}, 7)]
    assert found["evenhand_audit_rows_lost"] == [({}, 8)]


async def test_two_servers_in_one_process_count_apart():
    one, two = counting("chat"), counting("chat")
    one(EVENT)

    assert "evenhand_requests_total" not in await scrape(two)


def test_several_processes_count_together(tmp_path: Path):
    code = """
from evenhand.server.telemetry.events import Event
from evenhand.server.telemetry.metrics import Metrics
import sys
metrics = Metrics()
metrics.set_routes(["chat"])
metrics.watch("waiting", "Waiting.", lambda: 5)
metrics(Event("r1", 0.0, "chat", "/v1/chat/completions", action="passed", stages={"total": 0.5}))
sys.stdout.write(metrics.text().decode())
"""
    source = str(Path(metrics_module.__file__).parents[3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", source)
        with shared_counts():
            told = [
                subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
                for _ in range(3)
            ]
            folder = Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])

    requests = [
        sample.value
        for text in told
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "evenhand_requests_total"
    ]
    assert requests == [1, 2, 3]
    assert "evenhand_waiting 5.0" in told[2]  # not 15: the others have ended
    assert 'evenhand_stage_seconds_count{route="chat",stage="total"} 3.0' in told[2]
    assert not folder.exists()
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ


async def test_the_scrape_needs_a_key_that_may():
    key, digest = new_key()
    auth = Auth({"prometheus": KeyConfig(hash=digest, may=("metrics",))}, "0.0.0.0")
    async with (
        serving(routes(counting()), auth_middleware(lambda: auth)) as (url, _),
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"{url}/metrics") as response:
            assert response.status == 401
        async with session.get(f"{url}/metrics", headers={"Authorization": f"Bearer {key}"}) as response:
            assert response.status == 200


async def test_without_the_package_the_address_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    metrics = load_metrics()
    assert metrics is None

    async with (
        serving(routes(metrics)) as (url, _),
        aiohttp.ClientSession() as session,
        session.get(f"{url}/metrics") as response,
    ):
        assert response.status == 501
        assert "pip install 'evenhand[serve]'" in (await response.json())["error"]["message"]
