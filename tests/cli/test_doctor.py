"""`evenhand doctor`: whether a model can be used at all."""

import re
from pathlib import Path
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


def test_without_a_model_the_installation_is_checked(cli: Any):
    result = cli("doctor")

    assert result.code == 0
    assert re.search(r"^versions  python \S+, evenhand \S+", result.out, re.MULTILINE)
    assert "run       22 built-in questions were asked of a stand-in, graded and stored" in result.out
    assert re.search(r"^scorer    builtin: toxicity of a kind sentence 0\.\d\d$", result.out, re.MULTILINE)
    assert re.search(r"^models    ready: .*openai", result.out, re.MULTILINE)


def test_what_does_not_work_in_the_installation_is_named(cli: Any, tmp_path: Path):
    (tmp_path / "evenhand.toml").write_text("limit = 'many'\n")
    (tmp_path / "cache").write_text("a file, not a folder")

    result = cli("doctor")

    assert result.code == 1
    assert re.search(r"^config    does not work: .*evenhand.toml, line 1", result.out, re.MULTILINE)
    assert re.search(r"^cache     does not work: The response cache", result.out, re.MULTILINE)
    assert "scorer    builtin: toxicity" in result.out
    assert "next " not in result.out
