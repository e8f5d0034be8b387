"""`evenhand doctor`: whether a model can be used at all, and whether it can judge."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from evenhand.evaluators.calibration import Contrast, JudgeTest
from evenhand.methods.base import METHODS
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from evenhand.scorers.rubric import Ratings
from evenhand.session import Session
from evenhand.types import Message, Params, Sample
from support.judges import constant, seeing
from support.referees import contrasting, referee, shown, verdict
from support.server import chat
from support.thinkers import SERVERS, in_thread

BBQ = "bbq_builtin"
Reply = Callable[[Sequence[Message], Params], str]


def _with(refereeing: Reply) -> Reply:
    """Judges all that there is, and the statements of debates as the referee does."""

    def reply(messages: Sequence[Message], params: Params) -> str:
        return (refereeing if shown(messages, contrasting()) else seeing)(messages, params)

    return reply


@pytest.fixture
def _judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models `judging/seeing`, `judging/odds`, which referees by odds alone, and `judging/constant`."""
    by_odds = referee(numbers=lambda found: verdict([3] * len(found)))
    functions = {"seeing": _with(referee()), "odds": _with(by_odds), "constant": constant}

    class Judging(FunctionModel):
        def __init__(self, name: str, options: object) -> None:
            super().__init__(functions[name], spec=f"judging/{name}")

    monkeypatch.setitem(PROVIDERS._things, "judging", Judging)


@pytest.mark.usefixtures("_judges")
def test_a_judge_that_sees_gets_thresholds_as_options_of_the_method(cli: Any):
    result = cli("doctor", "judging/seeing", "--as-judge")

    assert result.code == 0
    assert re.search(r"^support +24/24 +1\.00 +90\.0 +10\.0 +50\.0$", result.out, re.MULTILINE)
    assert "use       --method stardtox:support=50,settled=50,quality=50" in result.out
    assert "use       --method mabrf:accept=5.5" in result.out


@pytest.mark.usefixtures("_judges")
def test_a_referee_gets_the_better_way_to_score_and_a_threshold_for_pairs(cli: Any):
    sees, by_odds = (cli("doctor", f"judging/{name}", "--as-judge").out for name in ("seeing", "odds"))

    assert re.search(r"^referee +60/60 +1\.00 +90\.0 +10\.0 +50\.0$", sees, re.MULTILINE)
    assert "use       --method debate:scoring=numbers\nuse       evenhand pairs RUN --threshold 5\n" in sees
    assert re.search(r"^referee +60/60 +0\.50 +30\.0 +30\.0  at chance: do not use it$", by_odds, re.MULTILINE)
    assert re.search(r"^odds +30/30 +1\.00 +100\.0 +0\.0 +50\.0$", by_odds, re.MULTILINE)
    assert "use       --method debate:scoring=odds\nuse       evenhand pairs RUN --threshold 5\n" in by_odds


@pytest.mark.usefixtures("_judges")
@pytest.mark.parametrize(("method", "benchmark"), [("stardtox", BBQ), ("mabrf", BBQ), ("debate", "debates")])
def test_the_options_that_it_prints_can_be_used(cli: Any, method: str, benchmark: str):
    out = cli("doctor", "judging/odds", "--as-judge").out
    option = re.search(rf"^use +--method ({method}:.*)$", out, re.MULTILINE)
    assert option is not None

    plan = ("--benchmark", benchmark, "--method", option[1], "--limit", "2", "--out", "r", "--dry-run")
    run = cli("run", "--model", "fake/A", *plan)

    assert run.code == 0, run


@pytest.mark.usefixtures("_judges")
def test_a_method_of_ones_own_declares_what_its_judge_should_tell_apart(cli: Any, monkeypatch: pytest.MonkeyPatch):
    async def rate(session: Session) -> Ratings:
        values = {"warmth": 0.9 if session.sample.id == "warm" else 0.2}
        return Ratings(values, values)

    texts = [Contrast(Sample(name, "chat", name), rate, [("warmth", name == "warm")]) for name in ("warm", "cold")]
    test = JudgeTest("judge for own", lambda: texts, lambda found: {"warmth": found[0].threshold})
    own = replace(METHODS.get("default"), name="own", calibration=test)
    monkeypatch.setitem(METHODS._things, "own", own)

    result = cli("doctor", "judging/seeing", "--as-judge")

    assert re.search(r"^warmth +1/1 +1\.00 +90\.0 +20\.0 +55\.0$", result.out, re.MULTILINE)
    assert "use       --method own:warmth=0.55" in result.out


@pytest.mark.usefixtures("_judges")
def test_a_judge_at_chance_is_not_to_be_used(cli: Any):
    result = cli("doctor", "judging/constant", "--as-judge")

    assert result.code == 0
    assert len(re.findall(r"0\.50 +70\.0 +70\.0  at chance: do not use it", result.out)) == 6
    assert "use       another model to judge for stardtox" in result.out
    assert "use       another model to judge for mabrf" in result.out
    assert "use       another model to referee" in result.out
    assert "evenhand pairs" not in result.out


def test_a_model_that_cannot_be_read_is_not_to_be_used(cli: Any):
    result = cli("doctor", "fake/A", "--as-judge")

    assert result.code == 0
    assert "no ratings could be read (48 replies)" in result.out
    assert "use       another model to judge for stardtox" in result.out
    assert "use       another model to judge for mabrf" in result.out
    assert "use       another model to referee" in result.out
    assert "evenhand pairs" not in result.out


def test_a_fake_judge_is_told_by_its_name_alone(cli: Any):
    spec = "fake/" + json.dumps(dict.fromkeys(("settled", "support", "fluency", "coherence", "relevance", "harm"), 50))

    assert "at chance" in cli("doctor", spec, "--as-judge").out


def test_without_the_flag_nobody_is_judged(cli: Any):
    assert "rating" not in cli("doctor", "fake/A").out


def test_a_reasoning_model_is_recognised_and_gets_options(cli: Any):
    with in_thread(SERVERS["deepseek-r1 and llama.cpp"]) as server:
        result = cli("doctor", "openai/thinker", "--base-url", server.url)

    assert result.code == 0
    assert re.search(r"^reasoning yes: [1-9]\d* tokens of thoughts$", result.out, re.MULTILINE)
    assert "answers   'B'" in result.out
    assert "use       --model-option reasoning=true" in result.out


def test_an_ordinary_model_gets_no_such_options(cli: Any):
    with in_thread(lambda _body: chat("A")) as server:
        result = cli("doctor", "openai/plain", "--base-url", server.url)

    assert re.search(r"^reasoning no$", result.out, re.MULTILINE)
    assert "--reasoning-effort" not in result.out


@pytest.mark.parametrize(
    ("reply", "hint"),
    [
        (chat("", finish="length"), "thought_tokens=32768"),
        (chat(None, reasoning_content="A"), "reasoning parser"),
        (chat(""), "chat template"),
    ],
)
def test_an_empty_reply_is_a_failure(cli: Any, reply: Any, hint: str):
    with in_thread(lambda _body: reply) as server:
        result = cli("doctor", "openai/empty", "--base-url", server.url)

    assert result.code != 0
    assert "answered with nothing" in result.err
    assert hint in result.err
