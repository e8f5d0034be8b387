"""`evenhand doctor`: whether a model can be used at all."""

import re
from typing import Any

import pytest

from support.server import chat
from support.thinkers import SERVERS, in_thread

BBQ = "bbq_builtin"


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
