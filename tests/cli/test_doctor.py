"""`evenhand doctor`: whether a model can be used at all, and whether it can judge."""

import re
from typing import Any

import pytest

from support.server import chat
from support.thinkers import SERVERS, in_thread

BBQ = "bbq_builtin"


@pytest.mark.usefixtures("_judges")
def test_a_judge_that_sees_is_fit_and_gets_no_thresholds(cli: Any):
    result = cli("doctor", "judging/seeing", "--as-judge")

    assert result.code == 0
    assert re.search(r"^support +24/72 +1\.00 +100\.0 +0\.0  fit$", result.out, re.MULTILINE)
    assert "fit       to judge for debate, mabrf, stardtox\n" in result.out
    assert "evenhand models calibrate judging/seeing --as-judge" in result.out
    assert "--method" not in result.out


@pytest.mark.usefixtures("_judges")
def test_a_judge_at_chance_is_unfit(cli: Any):
    result = cli("doctor", "judging/constant", "--as-judge")

    assert result.code == 0
    assert len(re.findall(r"0\.50 +70\.0 +70\.0  at chance: do not use it", result.out)) == 5
    assert "unfit     use another model to judge for stardtox" in result.out
    assert "evenhand models calibrate" not in result.out


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
