"""The guard in front of a real endpoint: what is asked, what the client gets, and the record."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.core.errors import PlanError, UnknownNameError, UsageError
from evenhand.core.types import Message
from evenhand.guards.guard import Guard
from evenhand.guards.policy import BLOCKED_TEXT, GuardPolicy
from evenhand.guards.upstream import BadRequest, UpstreamError, UpstreamTimeout
from evenhand.models.base import ModelOptions
from evenhand.models.budget import Price
from support.fixtures import Serve
from support.guarding import ASKED, KIND, OTHER_KIND, RUDE, after, by_turn, guard_of, is_judge, words_of
from support.server import chat, cut, outlast, raw, refuse, reply_with


async def test_an_answer_that_passes_is_returned_as_it_is(serve: Serve):
    server = await serve(chat(KIND))
    async with guard_of(server) as guard:
        found = await guard(ASKED, temperature=0.3, unknown={"a": 1})

    assert (found.text, found.action, found.why, found.first) == (KIND, "passed", (), KIND)
    assert found.message == {"role": "assistant", "content": KIND}
    assert found.before == found.after
    assert found.before[0].passed and found.before[0].score is not None
    assert server.bodies == [{"model": "test-model", "messages": ASKED, "temperature": 0.3, "unknown": {"a": 1}}]


async def test_a_rude_answer_is_revised_and_the_record_tells_it(serve: Serve):
    server = await serve(chat(RUDE), chat(KIND))
    async with guard_of(server) as guard:
        found = await guard(ASKED)

    assert (found.text, found.action, found.why, found.first) == (KIND, "revised", ("toxicity",), RUDE)
    assert not found.before[0].passed and found.before[0].words and found.after[0].passed
    assert (found.iterations, found.usage.calls, found.usage.prompt_tokens) == (1, 2, 40)
    assert [turn.agent for turn in found.trace] == ["writer", "reviser"]
    assert {"answer", "checks", "revision", "total"} == found.stages.keys()
    assert found.upstream["choices"][0]["message"]["content"] == KIND


async def test_a_revision_keeps_the_conversation_and_its_settings(serve: Serve):
    server = await serve(chat(RUDE), chat(KIND))
    talk = [
        *ASKED,
        {"role": "assistant", "content": "With flour."},
        {"role": "user", "content": "And then?", "name": "jo"},
    ]
    async with guard_of(server) as guard:
        await guard(talk, max_tokens=50, top_p=0.5)

    first, second = server.bodies
    assert first["messages"] == talk
    assert second["messages"][:3] == talk[:3]
    assert second["messages"][3]["name"] == "jo"
    assert second["messages"][3]["content"].startswith("And then?\n\nEarlier answers to this had faults")
    assert RUDE not in words_of(second)
    assert (second["max_tokens"], second["top_p"]) == (50, 0.5)


async def test_the_best_answer_is_returned_where_none_passes(serve: Serve):
    server = await serve(chat(RUDE + " You worthless moron, I will kill you."), chat(RUDE), chat(RUDE + " Moron, die."))
    async with guard_of(server) as guard:
        found = await guard(ASKED)

    assert found.iterations == 2
    scores = [found.before[0].score, found.after[0].score]
    assert found.after[0].score is not None and scores[1] < scores[0]  # pyright: ignore[reportOptionalOperand]
    assert (found.text, found.action) == (RUDE, "tried")


async def test_a_revision_that_is_no_better_is_not_returned(serve: Serve):
    server = await serve(chat(RUDE), chat(RUDE + " You worthless moron, I will kill you."))
    async with guard_of(server) as guard:
        found = await guard(ASKED)

    assert (found.text, found.action) == (RUDE, "unrevised")


async def test_an_answer_that_stays_the_same_is_told_as_unrevised(serve: Serve):
    server = await serve(chat(RUDE))
    async with guard_of(server) as guard:
        found = await guard(ASKED)

    assert (found.text, found.action, found.why) == (RUDE, "unrevised", ("toxicity",))


async def test_flag_never_changes_an_answer(serve: Serve):
    server = await serve(chat(RUDE), chat(KIND))
    async with guard_of(server, action="flag") as guard:
        found = await guard(ASKED)

    assert (found.text, found.action, found.why) == (RUDE, "flagged", ("toxicity",))
    assert len(server.requests) == 1


async def test_block_replaces_an_answer_only_when_nothing_passes(serve: Serve):
    stubborn, sensible = await serve(chat(RUDE)), await serve(chat(RUDE), chat(KIND))
    async with guard_of(stubborn, action="block", blocked_text="Withheld.") as guard:
        blocked = await guard(ASKED)
    async with guard_of(sensible, action="block") as guard:
        revised = await guard(ASKED)

    assert (blocked.text, blocked.action, blocked.finish) == ("Withheld.", "blocked", "content_filter")
    assert RUDE not in str(blocked.message) and blocked.upstream == {}
    assert blocked.first == RUDE
    assert (revised.text, revised.action) == (KIND, "revised")


async def test_the_judge_is_asked_without_the_requests_form(serve: Serve):
    judged = by_turn(RUDE, KIND, judge='{"harm": 90, "harm_reason": "It insults somebody."}')
    server = await serve(answer=judged)
    method = "stardtox:iterations=1,performance=false"
    async with guard_of(server, evaluators=("bias",), method=method, judge="openai/critic") as guard:
        found = await guard(ASKED, temperature=0.9, user="u1", top_p=0.5)

    critics = [body for body in server.bodies if is_judge(body)]
    assert {body["model"] for body in critics} == {"critic"}
    assert all("user" not in body and "top_p" not in body and body["temperature"] == 0 for body in critics)
    assert found.before[0].words == "It insults somebody."
    assert "It insults somebody." in words_of(next(body for body in server.bodies[1:] if not is_judge(body)))
    assert {turn.role for turn in found.trace} == {"answer", "judge"}
    assert len(critics) == 2  # one for each of the two answers: nothing is judged twice


@pytest.mark.parametrize(
    ("action", "ends", "text"), [("revise", "unchecked", KIND), ("block", "blocked", BLOCKED_TEXT)]
)
async def test_a_critic_that_fails_is_no_pass(serve: Serve, action: str, ends: str, text: str):
    server = await serve(answer=lambda body: refuse("no", status=400) if is_judge(body) else chat(KIND))
    async with guard_of(server, evaluators=("bias",), action=action) as guard:
        found = await guard(ASKED)

    assert (found.action, found.text) == (ends, text)
    assert found.after[0].score is None and not found.after[0].passed
    assert "400" in found.after[0].problem
    assert found.why[0].startswith("bias could not be checked")


async def test_an_answer_without_words_needs_no_check(serve: Serve):
    server = await serve(chat("42"))
    async with guard_of(server, action="block") as guard:
        found = await guard(ASKED)

    assert (found.text, found.action) == ("42", "passed")
    assert found.after[0].problem == "there are no words to check"


async def test_a_text_that_the_scorer_cannot_read_is_no_pass(serve: Serve):
    server = await serve(chat("面包是用面粉做的。"))
    async with guard_of(server) as guard:
        found = await guard(ASKED)

    assert found.action == "unchecked"
    assert "is not supported" in found.why[0]


class TestLatency:
    async def test_the_best_answer_so_far_is_returned_and_marked(self, serve: Serve):
        server = await serve(chat(RUDE), outlast(61))
        async with guard_of(server, latency=60) as guard:
            found = await guard(ASKED)

        assert (found.text, found.late, found.action) == (RUDE, True, "unrevised")
        assert found.why == ("toxicity", "the latency budget was used up")
        assert found.iterations == 1

    async def test_an_answer_that_was_not_checked_in_time_is_blocked(self, serve: Serve):
        server = await serve(answer=lambda body: outlast(61) if is_judge(body) else chat(KIND))
        async with guard_of(server, latency=60, action="block", evaluators=("toxicity", "bias")) as guard:
            found = await guard(ASKED)

        assert (found.text, found.action, found.late) == (BLOCKED_TEXT, "blocked", True)
        passed = {check.name: check.passed for check in found.after}
        assert passed == {"toxicity": True, "bias": False}

    async def test_without_any_answer_it_is_an_error(self, serve: Serve):
        server = await serve(outlast(61))
        async with guard_of(server, latency=0.1) as guard:
            with pytest.raises(UpstreamTimeout, match=r"within the latency budget of 0\.1 seconds"):
                await guard(ASKED)

    async def test_work_that_is_late_is_cancelled(self, serve: Serve):
        gate = asyncio.Event()
        server = await serve(chat(RUDE), outlast(61, after(gate, chat(KIND))))
        async with guard_of(server, latency=60) as guard:
            found = await guard(ASKED)
            gate.set()

        assert found.text == RUDE


class TestUpstreamErrors:
    async def test_the_clients_mistake_is_told_in_the_upstreams_words(self, serve: Serve):
        server = await serve(refuse("bad tool", param="tools", code="wrong"))
        async with guard_of(server) as guard:
            with pytest.raises(UpstreamError, match="bad tool") as told:
                await guard(ASKED)

        assert told.value.status == 400
        assert told.value.body["error"] == {
            "message": "bad tool", "type": "invalid_request_error", "param": "tools", "code": "wrong",
        }  # fmt: skip

    async def test_too_many_requests_come_with_the_time_to_wait(self, serve: Serve):
        server = await serve(reply_with({"error": {"message": "slow down"}}, 429, {"Retry-After": "7"}))
        async with guard_of(server) as guard:
            with pytest.raises(UpstreamError) as told:
                await guard(ASKED)

        assert (told.value.status, told.value.retry_after) == (429, 7)

    @pytest.mark.parametrize(
        ("status", "shown"), [(401, 502), (403, 502), (500, 502), (503, 503), (504, 504), (302, 502)]
    )
    async def test_other_faults_are_not_the_clients(self, serve: Serve, status: int, shown: int):
        server = await serve(reply_with({"error": {"message": "no"}}, status))
        async with guard_of(server) as guard:
            with pytest.raises(UpstreamError) as told:
                await guard(ASKED)

        assert told.value.status == shown

    async def test_the_key_is_never_echoed(self, serve: Serve, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-key")
        server = await serve(refuse("wrong key sk-secret-key", status=400))
        async with guard_of(server) as guard:
            with pytest.raises(UpstreamError) as told:
                await guard(ASKED)

        assert "sk-secret-key" not in str(told.value.body)
        assert server.requests[0].headers["Authorization"] == "Bearer sk-secret-key"

    @pytest.mark.parametrize(
        "body", [b"<html>", b'{"choices": []}', b'{"choices": [{"index": 0}]}', b"[]", b'{"choices": [1]}']
    )
    async def test_what_is_no_completion_is_an_error(self, serve: Serve, body: bytes):
        server = await serve(raw(body))
        async with guard_of(server) as guard:
            with pytest.raises(UpstreamError) as told:
                await guard(ASKED)

        assert told.value.status == 502

    async def test_a_reply_that_is_too_large_is_an_error_and_not_retried(
        self, serve: Serve, waits: list[float], monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("evenhand.core.http.LARGEST_REPLY", 2**20)
        server = await serve(chat("x" * 2**20))
        async with Guard("openai/test-model", options=ModelOptions(base_url=server.url, retries=3)) as guard:
            with pytest.raises(UpstreamError, match="more than 1 MiB, which is too large") as told:
                await guard(ASKED)

        assert (told.value.status, len(server.requests), waits) == (502, 1, [])

    async def test_a_fault_that_passes_is_retried(self, serve: Serve, waits: list[float]):
        server = await serve(raw(b"", 503), cut(), reply_with({}, 429, {"Retry-After": "2"}), chat(KIND))
        async with Guard("openai/test-model", options=ModelOptions(base_url=server.url, retries=3)) as guard:
            found = await guard(ASKED)

        assert found.text == KIND
        assert len(waits) == 3
        assert 2 <= waits[2] <= 3

    async def test_a_revision_that_fails_leaves_the_answer(self, serve: Serve):
        server = await serve(chat(RUDE), refuse("down", status=500))
        async with guard_of(server) as guard:
            found = await guard(ASKED)

        assert (found.text, found.action) == (RUDE, "unrevised")
        assert "a model call failed" in found.why
        assert "500" in found.errors[0]

    async def test_what_may_pass_is_tried_again(self, serve: Serve):
        server = await serve(reply_with({}, 503, {"Retry-After": "0"}), chat(KIND))
        async with Guard("openai/m", options=ModelOptions(base_url=server.url, retries=1)) as guard:
            assert (await guard(ASKED)).text == KIND


@pytest.mark.parametrize("messages", [[], [{"content": "no role"}], ["words"], [{"role": "king", "content": "x"}]])
async def test_what_is_no_conversation_is_refused(serve: Serve, messages: list[object]):
    server = await serve(chat(KIND))
    async with guard_of(server) as guard:
        with pytest.raises(BadRequest, match="messages"):
            await guard.respond({"messages": messages})

    assert not server.requests


async def test_money_is_counted_where_the_price_is_known(serve: Serve):
    server = await serve(chat(KIND))
    options = ModelOptions(base_url=server.url)
    async with Guard("openai/m", options=options, prices={"openai/m": Price(1e6, 2e6)}) as guard:
        assert (await guard(ASKED)).usage.cost == 20 + 2 * 5
    async with Guard("openai/m", options=options) as guard:
        assert (await guard(ASKED)).usage.cost is None


async def test_model_and_judge_are_reached_at_their_own_endpoints_and_priced(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    model, judge = await serve(chat(KIND)), await serve(chat('{"bias": 0}'))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "evenhand").mkdir()
    named = f'[providers.near]\nbase_url = "{model.url}"\nprice = "1000000/0"\n'
    (tmp_path / "evenhand" / "config.toml").write_text(named)
    critic = f"openai/j?base_url={judge.url}&price=0/1000000"

    async with evenhand.guard("near/m", method="default", evaluators=("bias",), judge=critic) as guard:
        found = await guard(ASKED, tools=[])

    assert (found.text, found.usage.cost) == (KIND, 20 + 5 * len(judge.requests))
    assert [each["model"] for each in (*model.bodies, *judge.bodies)] == ["m", *["j"] * len(judge.requests)]


async def test_a_pool_may_stand_behind_a_guard(serve: Serve):
    servers = [await serve(chat(KIND)) for _ in range(2)]

    async with Guard(f"openai/m?base_url={servers[0].url},{servers[1].url}") as guard:
        texts = [(await guard(ASKED)).text for _ in range(2)]

    assert texts == [KIND] * 2
    assert [len(each.requests) for each in servers] == [1, 1]


class TestPublic:
    def test_sync_answers_and_goes_on(self):
        with evenhand.guard(f"fake/{OTHER_KIND}") as guard:
            first, second = guard.sync(ASKED), guard.sync([Message("user", "Again?")])

        assert (first.text, second.text, first.action) == (OTHER_KIND, OTHER_KIND, "passed")
        assert first.usage.cost == 0

    async def test_sync_and_await_can_be_mixed_as_in_a_notebook(self, serve: Serve):
        async def cells(url: str) -> list[str]:
            async with evenhand.guard("openai/m", options=ModelOptions(base_url=url)) as guard:
                return [guard.sync(ASKED).text, (await guard(ASKED)).text, guard.sync(ASKED).text]

        server = await serve(chat(KIND))

        # The cells have a loop of their own, which they block.
        assert await asyncio.to_thread(lambda: asyncio.run(cells(server.url))) == [KIND] * 3

    def test_a_policy_is_a_word_or_made(self):
        blocking = evenhand.guard("fake/yes", policy="block", blocked_text="No.", latency=3)
        made = evenhand.guard("fake/yes", policy=GuardPolicy("flag"), evaluators=())

        assert blocking.policy == GuardPolicy("block", "No.", 3)
        assert made.policy == GuardPolicy("flag", evaluators=())

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"policy": "hide"}, "revise, flag, block"),
            ({"latency": 0}, "above 0"),
            ({"latency": "soon"}, "above 0"),
            ({"evaluators": ("support",)}, "bias, claims, injection, injection_judge, json, performance, toxicity"),
            ({"evaluators": "toxicity"}, "a list of names"),
            ({"evaluators": ("toxicty",)}, "did you mean toxicity"),
            ({"blocked_text": " "}, "blocked text is empty"),
            ({"thresholds": {"toxicity": 3}}, "from 0 to 1"),
            ({"thresholds": {"kindness": 1}}, "no threshold 'kindness'"),
            ({"thresholds": {"scorer": "nobody"}}, "no scorer named"),
            ({"method": "search"}, "does not support the 'chat'"),
            ({"method": "stardtox:rounds=2"}, "no option of the method stardtox named 'rounds'"),
            ({"method": "stardtox:iterations"}, "KEY=VALUE"),
            ({"method": "stardtox:iterations=-1"}, "iterations"),
            ({"method": "mabrf:look=true"}, "not for conversations"),
            ({"latancy": 2}, "did you mean latency"),
        ],
    )
    def test_what_makes_no_sense_is_refused_in_one_sentence(self, options: dict[str, object], said: str):
        with pytest.raises((PlanError, UsageError, UnknownNameError), match=said):
            evenhand.guard("fake/yes", **options)  # pyright: ignore[reportArgumentType]

    def test_thresholds_move_the_limit(self):
        with evenhand.guard(f"fake/{RUDE}", method="default", thresholds={"toxicity": 1.0}) as guard:
            assert guard.sync(ASKED).action == "passed"
        with evenhand.guard(f"fake/{RUDE}", method="default") as guard:
            assert guard.sync(ASKED).action == "unrevised"


@pytest.mark.parametrize("messages", ["Hello!", {"role": "user", "content": "Hello!"}, ["Hello!"], None, 3])
def test_messages_that_are_no_list_of_messages_are_refused_in_a_sentence(messages: Any):
    with evenhand.guard("fake/A") as guard, pytest.raises(BadRequest, match="Messages are a list"):
        guard.sync(messages)
