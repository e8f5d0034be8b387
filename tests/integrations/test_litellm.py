"""The guardrail for LiteLLM: its own logic beside a stand-in for LiteLLM's class, and the real proxy."""

import importlib
import json
import os
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from evenhand.core.errors import MissingExtraError, PlanError
from support.clients import clean_environment, python_with
from support.guard_server import CLEAN, RUDE
from support.server import reply_with

ROOT = Path(__file__).parents[2]
MODULE = "evenhand.integrations.litellm"
PINS = ["litellm[proxy]==1.106.2", "-e", str(ROOT)]
KEY = "sk-" + "0123456789abcdef" * 3


class Refused(Exception):  # noqa: N818 - stands for LiteLLM's own
    def __init__(self, name: str, message: str, **about: Any) -> None:
        super().__init__(message)
        self.about = about


class Held(Exception):  # noqa: N818 - stands for LiteLLM's own
    """A stream that ends with a notice."""


class StandIn:
    guardrail_name = "evenhand"

    def __init__(self, **more: Any) -> None:
        self.more = more
        self.reported: list[dict[str, Any]] = []

    def add_standard_logging_guardrail_information_to_request_data(self, **given: Any) -> None:
        self.reported.append(given)

    def raise_passthrough_exception(self, *, violation_message: str, **_: Any) -> None:
        raise Held(violation_message)


@pytest.fixture
def guardrail(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class, beside a stand-in for LiteLLM."""
    names = ("litellm", "litellm.integrations", "litellm.integrations.custom_guardrail", "litellm.exceptions")
    made: dict[str, Any] = {name: types.ModuleType(name) for name in names}
    made["litellm.integrations.custom_guardrail"].CustomGuardrail = StandIn
    made["litellm.exceptions"].GuardrailRaisedException = Refused
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield importlib.import_module(MODULE).EvenhandGuardrail
    sys.modules.pop(MODULE, None)


def _call(said: str) -> dict[str, Any]:
    function = {"name": "say", "arguments": json.dumps({"text": said})}
    return {"id": "call_0123456789abcdef", "type": "function", "function": function}


@pytest.mark.parametrize("request_data", [{}, {"stream": True}], ids=["whole", "streamed"])
async def test_an_answer_with_tool_calls_that_fail_is_withheld(guardrail: Any, request_data: dict[str, Any]) -> None:
    made = guardrail(blocked_text="Withheld.")
    with pytest.raises(Held, match="Withheld"):
        await made.apply_guardrail({"tool_calls": [_call(CLEAN), _call(RUDE)]}, request_data, "response")
    assert made.reported[0]["guardrail_status"] == "guardrail_intervened"


async def test_tool_calls_that_pass_or_are_only_flagged_go_on(guardrail: Any) -> None:
    for policy, said in (("block", CLEAN), ("flag", RUDE)):
        inputs = {"tool_calls": [_call(said)]}
        assert (await guardrail(policy).apply_guardrail(inputs, {}, "response"))["tool_calls"] == inputs["tool_calls"]


async def applied(made: Any, kind: str, *texts: str, **request: Any) -> list[str]:
    return (await made.apply_guardrail({"texts": list(texts)}, request, kind))["texts"]


async def test_answers_that_fail_are_replaced(guardrail: Any) -> None:
    made = guardrail(blocked_text="Withheld.", default_on=True)
    assert made.more == {"default_on": True}
    assert await applied(made, "response", CLEAN, RUDE) == [CLEAN, "Withheld."]
    (report,) = made.reported
    assert report["guardrail_status"] == "guardrail_intervened"
    assert report["guardrail_json_response"]["checks"][0]["name"] == "toxicity"


async def test_thoughts_are_checked_too(guardrail: Any) -> None:
    assert await applied(guardrail(blocked_text="No."), "response", f"<think>{RUDE}</think>{CLEAN}") == ["No."]


async def test_a_stream_that_fails_ends_with_the_notice(guardrail: Any) -> None:
    made = guardrail(blocked_text="Withheld.")
    assert made.streaming_buffer_until_moderated
    with pytest.raises(Held, match=r"Withheld\."):
        await applied(made, "response", RUDE, stream=True)
    assert await applied(made, "response", CLEAN, stream=True) == [CLEAN]


async def test_requests_that_fail_are_refused(guardrail: Any) -> None:
    made = guardrail()
    assert await applied(made, "request", CLEAN) == [CLEAN]
    with pytest.raises(Refused, match="did not pass the checks of this service: toxicity") as refused:
        await applied(made, "request", CLEAN, RUDE)
    assert refused.value.about["blocked_content"] is True


async def test_flag_changes_nothing_and_reports(guardrail: Any) -> None:
    made = guardrail(policy="flag")
    assert await applied(made, "request", RUDE) == [RUDE]
    assert [each["guardrail_status"] for each in made.reported] == ["success"]


async def test_a_server_can_score(guardrail: Any, serve: Any) -> None:
    categories = ("harassment", "harassment/threatening", "hate", "hate/threatening", "violence", "sexual")
    scores = {**dict.fromkeys(categories, 0.0), "toxicity": 0.9}
    server = await serve(reply_with({"results": [{"category_scores": scores}]}))
    made = guardrail(api_base=server.url, api_key="k1", blocked_text="Withheld.")
    assert await applied(made, "response", CLEAN) == ["Withheld."]
    await made.aclose()


async def test_a_server_that_fails_lets_nothing_pass_unless_told(guardrail: Any, serve: Any) -> None:
    server = await serve(reply_with({"results": []}))
    strict = guardrail(api_base=server.url, blocked_text="No.")
    assert await applied(strict, "response", CLEAN) == ["No."]
    await strict.aclose()
    lax = guardrail(api_base=server.url, unchecked="flag")
    assert await applied(lax, "response", CLEAN) == [CLEAN]
    assert len(lax.reported) == 1
    await lax.aclose()


def test_a_policy_that_cannot_work_is_refused(guardrail: Any) -> None:
    with pytest.raises(PlanError, match="evenhand serve"):
        guardrail(policy="revise")
    with pytest.raises(PlanError, match="block"):
        guardrail(policy="drop")


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm.integrations.custom_guardrail", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(MissingExtraError, match=r"\[litellm\]"):
        importlib.import_module(MODULE)


CONFIG: dict[str, Any] = {
    "model_list": [
        {"model_name": name, "litellm_params": {"model": "openai/x", "api_key": "none", "mock_response": text}}
        for name, text in (("kind", CLEAN), ("rude", RUDE))
    ],
    "guardrails": [
        {
            "guardrail_name": "evenhand",
            "litellm_params": {
                "guardrail": f"{MODULE}.EvenhandGuardrail",
                "mode": ["pre_call", "post_call"],
                "default_on": True,
                "blocked_text": "Withheld.",
            },
        }
    ],
}


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[str]:
    """The address of LiteLLM's proxy with the guardrail."""
    python = python_with(PINS)
    (tmp_path / "config.yaml").write_text(json.dumps(CONFIG))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HOME": os.environ.get("HOME", "/")}
    command = [str(python.with_name("litellm")), "--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=tmp_path, env={**clean_environment(), **own}, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            url = f"http://127.0.0.1:{port}"
            while server.poll() is None:
                try:
                    urlopen(f"{url}/health/liveliness", timeout=5).read()
                    break
                except (URLError, TimeoutError):
                    time.sleep(0.5)
            assert server.poll() is None, (tmp_path / "log").read_text()[-2000:]
            yield url
        finally:
            server.terminate()
            server.wait(30)


def asked(url: str, model: str, text: str, **more: Any) -> tuple[int, str]:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **more}
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    try:
        with urlopen(Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers), timeout=120) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.clients
def test_the_real_proxy_is_guarded(proxy: str) -> None:
    status, body = asked(proxy, "kind", "How is it?")
    assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, CLEAN)
    status, body = asked(proxy, "rude", "How is it?")
    assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "Withheld.")
    status, body = asked(proxy, "kind", RUDE)
    assert status == 400
    assert "did not pass the checks of this service: toxicity" in body
    status, body = asked(proxy, "rude", "How is it?", stream=True)
    assert status == 200
    assert "Withheld." in body
    assert "You" not in body
    status, body = asked(proxy, "kind", "How is it?", stream=True)
    parts = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    assert "".join(part["choices"][0]["delta"].get("content") or "" for part in parts if part["choices"]) == CLEAN
