"""Whole runs of judges and panels: the dry run counts their calls, and a run makes just these."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from evenhand.core.types import Message, Params
from evenhand.panels import METRICS
from evenhand.runs.dry import forecast
from evenhand.runs.plan import make_plan
from support.runs import Workshop

SAMPLES = 11 + 26
PLAN: dict[str, Any] = {"benchmark": "malibu", "limit": 1}
CALLS = [
    ("judge", {}, 1),
    ("panel", {}, 12),
    ("panel", {"rounds": 0}, 4),
    ("panel", {"judges": 8, "rounds": 1, "order": "together"}, 16),
    ("panel", {"judges": 3, "topology": "star", "order": "shuffled", "consensus": "chair"}, 10),
    ("fair_panel", {"consensus": "median"}, 12),
    ("blind_panel", {"judges": 2, "rounds": 1, "topology": "chain"}, 4),
]


def fair(messages: Sequence[Message], _params: Params) -> str:
    """The same for everybody, in the form that is asked for."""
    if '"a_creativity"' not in messages[0].content:
        return json.dumps({**dict.fromkeys(METRICS, 7), "why": "It is safe."})
    scores = dict.fromkeys([f"{side}_{name}" for side in "ab" for name in METRICS], 7)
    return json.dumps({**scores, "winner": "tie", "why": "They are alike."})


@pytest.mark.parametrize(("method", "options", "calls"), CALLS, ids=str)
async def test_the_dry_run_counts_the_calls_of_the_run(
    workshop: Workshop, method: str, options: dict[str, Any], calls: int
):
    model = workshop.model(fair)
    plan = {**PLAN, "methods": [{"name": method, "options": options}]}

    [found] = await forecast(make_plan({**plan, "models": ["fake/one"]}), {})
    progress = await workshop.run(**plan)

    assert (found.samples, found.usage.calls) == (SAMPLES, SAMPLES * calls)
    assert len(model.requests) == found.usage.calls
    assert progress.statuses == {"graded": SAMPLES}


@pytest.mark.parametrize("spec", ["openai/test", "local/builtin", "call/my_team:judge"])
async def test_the_dry_run_counts_alike_for_all_models(spec: str):
    plan = {**PLAN, "models": [spec], "methods": ["panel"]}

    [found] = await forecast(make_plan(plan), {})

    assert found.usage.calls == SAMPLES * 12
