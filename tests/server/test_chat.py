"""Chat completions through the server: what the client gets, and what is told about it."""

import orjson
import pytest

from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, route
from support.server import chat, completion, outlast, raw, refuse, reply_with


async def test_a_good_answer_passes_with_its_record(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await guard.chat("How is the park?")

    assert answer.status == 200
    assert answer.body["object"] == "chat.completion"
    assert answer.body["model"] == "guarded"
    assert answer.body["choices"][0]["message"]["content"] == CLEAN
    assert answer.body["choices"][0]["finish_reason"] == "stop"
    assert answer.body["usage"] == {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    assert answer.body["evenhand"]["action"] == "passed"
    assert answer.headers["X-Evenhand-Action"] == "passed"
    assert answer.headers["X-Evenhand-Revised"] == "false"
    assert answer.headers["X-Evenhand-Route"] == "guarded"
    assert answer.headers["X-Request-Id"] == guard.event.id
    assert behind.bodies[0]["model"] == "behind"


async def test_a_bad_answer_is_revised_and_all_calls_are_counted(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE), chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await guard.chat("What do you think of me?")

    assert answer.body["choices"][0]["message"]["content"] == CLEAN
    told = answer.body["evenhand"]
    assert (told["action"], told["why"], told["iterations"]) == ("revised", ["toxicity"], 1)
    assert told["before"][0]["score"] > told["before"][0]["limit"] > told["after"][0]["score"]
    assert told["calls"] == len(behind.bodies) == int(answer.headers["X-Evenhand-Calls"])
    assert answer.body["usage"]["total_tokens"] == 25 * len(behind.bodies)
    assert RUDE not in answer.text
    assert (guard.event.first, guard.event.text, guard.event.action) == (RUDE, CLEAN, "revised")


async def test_block_replaces_what_does_not_pass(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE))
    guard = await guarding(route(behind.url, policy="block", blocked_text="Withheld."))

    answer = await guard.chat()

    assert answer.body["choices"][0]["message"]["content"] == "Withheld."
    assert answer.headers["X-Evenhand-Action"] == "blocked"
    assert RUDE not in answer.text


async def test_unknown_parameters_pass_through_and_hosts_cannot_be_chosen(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    elsewhere = await serve(chat("stolen"))
    guard = await guarding(route(behind.url))

    answer = await guard.chat(base_url=elsewhere.url, top_k=7, metadata={"team": "a"}, temperature=0.3)

    assert answer.status == 200
    assert {"top_k": 7, "metadata": {"team": "a"}, "temperature": 0.3}.items() <= behind.bodies[0].items()
    assert elsewhere.bodies == []
    other = await guard.chat(model=elsewhere.url)
    assert other.status == 404


async def test_n_answers_are_guarded_each(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN), chat(RUDE), chat(CLEAN))
    guard = await guarding(route(behind.url, policy="flag", method="default"))

    answer = await guard.chat(n=3, seed=5)

    texts = [choice["message"]["content"] for choice in answer.body["choices"]]
    assert sorted(texts) == sorted([CLEAN, RUDE, CLEAN])
    assert [choice["index"] for choice in answer.body["choices"]] == [0, 1, 2]
    assert answer.body["evenhand"]["action"] == "flagged"
    actions = [each["action"] for each in answer.body["evenhand"]["answers"]]
    assert actions == ["flagged" if text == RUDE else "passed" for text in texts]
    assert sorted(body["seed"] for body in behind.bodies) == [5, 6, 7]
    assert all(body.get("n", 1) == 1 for body in behind.bodies)
    assert answer.body["usage"]["total_tokens"] == 75


async def test_tool_calls_reach_the_client(serve: Serve, guarding: Guarding):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    behind = await serve(chat(None, finish="tool_calls", tool_calls=[call]))
    guard = await guarding(route(behind.url))
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]

    answer = await guard.chat(tools=tools)

    assert answer.body["choices"][0]["message"]["tool_calls"] == [call]
    assert answer.body["choices"][0]["finish_reason"] == "tool_calls"
    assert behind.bodies[0]["tools"] == tools


async def test_logprobs_of_the_returned_answer_are_kept(serve: Serve, guarding: Guarding):
    token = {"token": CLEAN, "logprob": -0.1, "bytes": [*CLEAN.encode()], "top_logprobs": []}
    logprobs = {"content": [token]}
    reply = completion(CLEAN)
    reply["choices"][0]["logprobs"] = logprobs
    reply["system_fingerprint"] = "fp"
    behind = await serve(reply_with(reply))
    guard = await guarding(route(behind.url))

    answer = await guard.chat(logprobs=True)

    assert answer.body["choices"][0]["logprobs"] == logprobs
    assert answer.body["system_fingerprint"] == "fp"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "must be a JSON object"),
        ({"messages": []}, "names no model"),
        ({"model": "guarded"}, "messages must be a list"),
        ({"model": "guarded", "messages": ["hi"]}, "object with a role"),
        ({"model": "guarded", "messages": [{"role": "user", "content": "hi"}], "n": 0}, "n must be"),
        ({"model": "guarded", "messages": [{"role": "user", "content": "hi"}], "n": True}, "n must be"),
        ({"model": "guarded", "messages": [{"role": "user", "content": "hi"}], "evenhand": 1}, "field evenhand"),
    ],
)
async def test_bad_requests_are_told_in_a_sentence(serve: Serve, guarding: Guarding, body: object, words: str):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await guard.post("/v1/chat/completions", body)

    assert answer.status == 400
    assert words in answer.body["error"]["message"]
    assert set(answer.body["error"]) == {"message", "type", "param", "code"}
    assert behind.bodies == []


@pytest.mark.parametrize(
    ("reply", "status", "kind"),
    [
        (refuse("temperature must be under 2", param="temperature"), 400, "invalid_request_error"),
        (refuse("Incorrect API key: sk-secret", status=401), 502, "server_error"),
        (refuse("no such model", status=404), 502, "server_error"),
        (reply_with({"error": {"message": "slow down"}}, 429, {"Retry-After": "7"}), 429, None),
        (reply_with({"error": "oops"}, 500), 502, "server_error"),
        (raw(b"<html>down</html>", 503), 503, "overloaded_error"),
        (raw(b'{"choices": ['), 502, "server_error"),
        (reply_with({"choices": []}), 502, "server_error"),
    ],
)
async def test_failures_of_the_endpoint_have_a_fitting_status(
    serve: Serve, guarding: Guarding, monkeypatch: pytest.MonkeyPatch, reply, status: int, kind: str | None
):
    monkeypatch.setenv("BEHIND_KEY", "sk-secret")
    behind = await serve(reply)
    guard = await guarding(route(behind.url, key_env="BEHIND_KEY"))

    answer = await guard.chat()

    assert answer.status == status
    assert answer.body["error"]["message"]
    assert kind in (None, answer.body["error"]["type"])
    assert "sk-secret" not in answer.text
    assert "sk-secret" not in repr(guard.event)
    assert ("Retry-After" in answer.headers) == (status in (429, 503))
    assert (guard.event.status, guard.event.action) == (status, "")
    assert guard.event.upstream_error


async def test_an_endpoint_that_hangs_reads_504(serve: Serve, guarding: Guarding):
    behind = await serve(outlast(61))
    guard = await guarding(route(behind.url, timeout=60))

    answer = await guard.chat()

    assert answer.status == 504
    assert guard.event.upstream_error == "timeout"


async def test_the_latency_budget_without_any_answer_reads_504(serve: Serve, guarding: Guarding):
    behind = await serve(outlast(61))
    guard = await guarding(route(behind.url, latency=60))

    answer = await guard.chat()

    assert answer.status == 504


async def test_the_servers_own_time_limit_reads_504(serve: Serve, guarding: Guarding):
    behind = await serve(outlast(61))
    guard = await guarding(route(behind.url), limits={"seconds": 60})

    answer = await guard.chat()

    assert answer.status == 504
    assert "60 s" in answer.body["error"]["message"]


async def test_all_answers_are_counted(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE), chat(CLEAN), chat(RUDE))
    guard = await guarding(route(behind.url, policy="flag"))

    await guard.chat(n=3)
    await guard.told()

    metrics = (await guard.get("/metrics")).text
    of = 'check="toxicity",route="guarded",when="after"} '
    assert f"evenhand_check_score_count{{{of}3.0" in metrics
    assert f"evenhand_checks_failed_total{{{of}2.0" in metrics
    means = guard.server.page.state()["windows"][0]["lines"]["toxicity"]  # type: ignore[union-attr]
    assert means["n"][-1] + means["n"][-2] == 3


async def test_usage_counts_a_revision_that_was_given_up(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE), outlast(40))
    guard = await guarding(route(behind.url, latency=30))

    answer = await guard.chat()

    assert (answer.body["evenhand"]["late"], answer.body["evenhand"]["calls"]) == (True, 2)
    assert answer.body["usage"]["total_tokens"] == guard.event.usage.tokens > 25


async def test_costs_are_told_where_the_route_has_a_price(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url, price={"input": 0.015, "output": 0.02}))

    answer = await guard.chat()

    assert answer.body["evenhand"]["cost"] == pytest.approx(400e-9)
    assert answer.headers["X-Evenhand-Cost"] == "0.000000400"


async def test_json_stays_json(serve: Serve, guarding: Guarding):
    behind = await serve(chat(f'{{"verdict": "{RUDE}"}}'), chat('{"verdict": "fine"}'))
    guard = await guarding(route(behind.url))

    answer = await guard.chat(response_format={"type": "json_object"})

    assert orjson.loads(answer.body["choices"][0]["message"]["content"]) == {"verdict": "fine"}


BARE = {"method": "default", "policy": "flag", "evaluators": []}


async def test_a_route_that_only_passes_on_changes_nothing(serve: Serve, guarding: Guarding):
    reply = completion(RUDE, reasoning_content="Let me see.")
    behind = await serve(reply_with(reply))
    guard = await guarding(route(behind.url, **BARE, price={"input": 1.0, "output": 2.0}))

    answer = await guard.chat(top_k=7)

    assert answer.body["choices"] == [{**reply["choices"][0], "logprobs": None}]
    assert answer.body["usage"] == reply["usage"]
    assert answer.body["evenhand"]["before"] == []
    assert answer.body["evenhand"]["cost"] == pytest.approx(30e-6)
    assert behind.bodies[0]["top_k"] == 7


@pytest.mark.parametrize(
    "reply", [{"choices": ["x"]}, {"choices": [{"finish_reason": "stop"}]}, {"choices": 3}, [], {"choices": []}]
)
@pytest.mark.parametrize("fields", [BARE, {}])
async def test_answers_that_are_none_read_502(serve: Serve, guarding: Guarding, reply: object, fields: dict):
    behind = await serve(reply_with(reply))
    guard = await guarding(route(behind.url, **fields))

    answer = await guard.chat()

    assert answer.status == 502
    assert answer.body["error"]["message"]
