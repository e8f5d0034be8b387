"""Every method behind the guard: one answer for the client, and the conversation in every call that belongs to it."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Answer, Outcome, Params, Sample
from evenhand.guards.guard import Guard
from evenhand.methods.base import METHODS
from evenhand.models.base import ModelOptions
from evenhand.session import Session
from support.fixtures import Serve
from support.guarding import ASKED, KIND, OTHER_KIND, RUDE, guard_of, is_judge, words_of
from support.server import Body, Reply, chat, refuse

ALL = ["default", "fair_prompt", "cot", "fairthinking", "stardtox", "mabrf", "self_debias_reprompt", "weigh"]
PLAIN = parse_prompt("test/plain", "# user\nSay it.\n")
JURY = json.dumps({"jurors": ["a young baker", "an old baker", "a customer", "a miller"]})


def baker(body: Body) -> Reply:
    """Names jurors, rates, thinks or answers, as it is asked."""
    asked = words_of(body)
    if "jurors:" in asked:
        return chat(JURY)
    if is_judge(body):
        return chat('{"bias": 0, "relevancy": 9, "harm": 0}')
    thinks = "the answer comes later" in body["messages"][-1]["content"]
    return chat("1. Flour comes first." if thinks else KIND)


@pytest.mark.parametrize("method", ALL)
async def test_it_answers_and_keeps_the_requests_fields(serve: Serve, method: str):
    server = await serve(answer=baker)
    async with guard_of(server, method=method) as guard:
        found = await guard(ASKED, temperature=0.7, max_tokens=77, user="u1")

    assert (found.text, found.after[0].passed) == (KIND, True)
    last = [body for body in server.bodies if "user" in body][-1]
    assert (last["temperature"], last["max_tokens"], last["user"]) == (0.7, 77, "u1")
    assert last["messages"][0]["content"].startswith("Be brief.")
    assert last["messages"][1]["content"].startswith("How is bread made?")
    assert found.usage.calls == len(server.requests)


@pytest.mark.parametrize("method", ALL)
async def test_a_developers_message_stays_one(serve: Serve, method: str):
    server = await serve(answer=baker)
    talk = [{"role": "developer", "content": "Be brief."}, ASKED[1]]
    async with guard_of(server, method=method) as guard:
        await guard(talk, user="u1")

    assert all(body["messages"][0]["role"] == "developer" for body in server.bodies if "user" in body)


async def test_an_instruction_joins_the_system_prompt(serve: Serve):
    server = await serve(answer=baker)
    async with guard_of(server, method="fair_prompt") as guard:
        await guard(ASKED)

    system = server.bodies[0]["messages"][0]
    assert system["role"] == "system"
    assert system["content"].startswith("Be brief.\n\nYou treat people of every age")
    assert server.bodies[0]["messages"][1:] == ASKED[1:]


async def test_speakers_take_turns(serve: Serve):
    server = await serve(answer=baker)
    async with guard_of(server, method="cot") as guard:
        await guard(ASKED)

    for body in server.bodies:
        roles = [each["role"] for each in body["messages"]]
        assert all(one != other for one, other in pairwise(roles))


async def test_a_method_that_brings_no_answer_is_replaced_by_the_plain_one(serve: Serve):
    def answer(body: Body) -> Reply:
        if "You sit in a jury" in words_of(body):
            return chat("I'm sorry, but I cannot help with that.")
        return baker(body)

    server = await serve(answer=answer)
    async with guard_of(server, method="fairthinking") as guard:
        found = await guard(ASKED)

    assert (found.text, found.action) == (KIND, "passed")
    assert found.why == ("the method fairthinking gave no answer",)
    assert server.bodies[-1]["messages"] == ASKED


async def test_a_thought_that_fails_does_not_take_the_answer_down(serve: Serve):
    def answer(body: Body) -> Reply:
        return refuse("no", status=400) if "the answer comes later" in words_of(body) else chat(KIND)

    server = await serve(answer=answer)
    async with guard_of(server, method="cot") as guard:
        found = await guard(ASKED)

    assert (found.text, found.action) == (KIND, "passed")
    assert len(found.why) == 2


async def test_a_judge_that_fails_leaves_mabrfs_first_answer(serve: Serve):
    server = await serve(answer=lambda body: refuse("no", status=500) if is_judge(body) else baker(body))
    async with guard_of(server, method="mabrf") as guard:
        found = await guard(ASKED)

    assert (found.text, found.why) == (KIND, ("the method mabrf ended early: unjudged",))


async def test_an_answer_that_only_the_method_changed_says_so(serve: Serve):
    server = await serve(chat(KIND), chat(OTHER_KIND))
    async with guard_of(server, method="self_debias_reprompt") as guard:
        found = await guard(ASKED)

    assert (found.text, found.action, found.why) == (OTHER_KIND, "revised", ("the method self_debias_reprompt",))


async def test_a_change_for_the_worse_is_not_returned(serve: Serve):
    server = await serve(chat(KIND), chat(RUDE))
    async with guard_of(server, method="self_debias_reprompt") as guard:
        found = await guard(ASKED)

    assert (found.text, found.action) == (KIND, "passed")


async def test_candidates_are_asked_for_in_one_call(serve: Serve):
    server = await serve(chat(RUDE), chat(KIND, n=3))
    async with guard_of(server, method="stardtox:candidates=3") as guard:
        found = await guard(ASKED)

    assert [body.get("n") for body in server.bodies] == [None, 3]
    assert (found.text, len(found.upstream["choices"])) == (KIND, 1)


async def test_any_model_can_be_guarded():
    async with Guard(f"fake/{KIND}", method="fairthinking", options=ModelOptions()) as guard:
        found = await guard(ASKED, temperature=0, response_format={"type": "text"})

    assert (found.text, found.action) == (KIND, "passed")


async def test_a_method_of_ones_own_that_writes_the_answer_itself(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    async def shout(sample: Sample, session: Session) -> Outcome:
        """Says it loudly."""
        said = await session.ask(PLAIN, sample.messages, Params(), agent="shouter")
        return Outcome(Answer(said.text.upper()))

    known = METHODS.get("default")
    monkeypatch.setitem(METHODS._things, "shout", replace(known, name="shout", run=shout, streams=None))  # pyright: ignore[reportPrivateUsage]
    server = await serve(chat(KIND))
    async with guard_of(server, method="shout") as guard:
        found = await guard(ASKED)

    assert (found.text, found.action, found.message["content"]) == (KIND.upper(), "passed", KIND.upper())


async def test_completions_go_through_raw(serve: Serve):
    from support.server import reply_with

    server = await serve(reply_with({"choices": [{"text": KIND}]}))
    async with guard_of(server) as guard:
        reply = await guard.upstream.completions({"prompt": "Bread", "echo": True, "stream": False})

    assert reply["choices"][0]["text"] == KIND
    assert server.requests[0].path == "/v1/completions"
    assert server.bodies == [{"prompt": "Bread", "echo": True, "model": "test-model"}]
