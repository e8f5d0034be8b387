"""Reasoning models behind servers as people run them: thoughts apart from answers, and room for both."""

from typing import Any

import pytest

from evenhand.core.errors import UsageError
from evenhand.core.types import Completion, Message, Params, TokenLogprob
from evenhand.models.base import Model, ModelOptions
from evenhand.models.fake import FunctionModel
from evenhand.models.load import load_model
from evenhand.models.reasoning import ROOM, ReasoningModel, separated, split_thought
from support.fixtures import Serve
from support.server import Body, ChatServer, Reply, chat, completion, refuse, reply_with
from support.thinkers import MENTIONS, SERVERS, THOUGHT, Server, limit_of, o_series, strips, thinks_in

QUESTION = [Message("user", "Who was it, A or B?")]
LETTER = Params(temperature=0, max_tokens=1, logprobs=20)
SHORT = Params(temperature=0, max_tokens=64)


def connect(server: ChatServer, **extra: Any) -> Model:
    return load_model("openai/thinker", ModelOptions(base_url=server.url, retries=0, extra=extra))


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
@pytest.mark.parametrize("params", [LETTER, SHORT, Params()], ids=["letter", "short", "unlimited"])
async def test_the_answer_arrives_without_thoughts(serve: Serve, server: Server, params: Params):
    async with connect(await serve(answer=server)) as model:
        generation = await model.generate(QUESTION, params)

    [only] = generation.completions
    assert only.text == "B"
    assert only.finish == "stop"


@pytest.mark.parametrize(
    "name", [name for name in SERVERS if name not in ("o-series and gpt-5", "gateway that strips")]
)
async def test_thoughts_are_kept_and_counted(serve: Serve, name: str):
    async with connect(await serve(answer=SERVERS[name])) as model:
        generation = await model.generate(QUESTION, SHORT)

    assert generation.completions[0].thought == THOUGHT
    assert generation.completions[0].logprobs is None
    assert generation.usage.thought_tokens > 0


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
async def test_only_the_first_call_is_made_twice(serve: Serve, server: Server):
    running = await serve(answer=server)
    async with connect(running) as model:
        first = await model.generate(QUESTION, LETTER)
        made = len(running.requests)
        second = await model.generate(QUESTION, LETTER)

        assert len(running.requests) == made + 1
        assert (first.usage.calls, second.usage.calls) == (2, 1)
        assert "logprobs" not in model.features
        assert limit_of(running.bodies[-1]) == 1 + ROOM
        assert any("thinks before it answers" in note for note in model.notes())


async def test_hidden_thoughts_are_counted_and_the_longer_name_of_the_limit_is_used(serve: Serve):
    server = await serve(answer=o_series)
    async with connect(server) as model:
        generation = await model.generate(QUESTION, SHORT)

        assert generation.usage.thought_tokens == 3
        assert server.bodies[-1]["max_completion_tokens"] == 64
        assert any("max_completion_tokens was sent instead" in note for note in model.notes())


async def test_thoughts_that_are_counted_beside_the_completion_are_added_to_it(serve: Serve):
    body = completion("B", reasoning_content="x")
    body["usage"] = {"prompt_tokens": 20, "completion_tokens": 2, "reasoning_tokens": 30, "total_tokens": 52}
    async with connect(await serve(reply_with(body))) as model:
        usage = (await model.generate(QUESTION, SHORT)).usage

    assert (usage.completion_tokens, usage.thought_tokens) == (32, 30)


async def test_a_known_thinker_that_is_cut_gets_more_room_once(serve: Serve):
    server = await serve(answer=thinks_in("reasoning_content", needed=10**6))
    async with connect(server, reasoning=True, thought_tokens=1000) as model:
        generation = await model.generate(QUESTION, SHORT)

    assert [limit_of(body) for body in server.bodies] == [1064, 4064]
    assert (generation.text, generation.completions[0].finish) == ("", "length")


async def test_the_users_own_limit_is_sent_as_it_is(serve: Serve):
    server = await serve(answer=thinks_in("reasoning_content"))
    async with connect(server, reasoning=True) as model:
        generation = await model.generate(QUESTION, Params(max_tokens=30, max_tokens_exact=True))

    assert [limit_of(body) for body in server.bodies] == [30]
    assert generation.completions[0].finish == "length"


async def test_a_model_declared_not_to_reason_is_never_given_room(serve: Serve):
    server = await serve(answer=strips)
    async with connect(server, reasoning=False) as model:
        await model.generate(QUESTION, Params(max_tokens=5))

    assert [limit_of(body) for body in server.bodies] == [5]


async def test_room_shrinks_to_the_context_of_the_model(serve: Serve):
    def answer(body: Body) -> Reply:
        if limit_of(body) > 4096:
            return refuse("This model's maximum context length is 4096 tokens. Please reduce the length.")
        return thinks_in("reasoning_content")(body)

    server = await serve(answer=answer)
    async with connect(server, reasoning=True) as model:
        await model.generate(QUESTION, SHORT)
        await model.generate(QUESTION, SHORT)

    assert [limit_of(body) for body in server.bodies] == [64 + 8192, 64 + 4096, 64 + 2048, 64 + 2048]


async def test_an_ordinary_model_is_called_once_and_keeps_its_logprobs(serve: Serve):
    server = await serve(chat(" ", finish="length", logprobs=True))
    async with connect(server) as model:
        generation = await model.generate(QUESTION, LETTER)

        assert len(server.requests) == 1
        assert generation.completions[0].logprobs is not None
        assert "logprobs" in model.features
        assert model.caveats() == []


async def test_an_endpoint_that_ignores_logprobs_is_remembered(serve: Serve):
    server = await serve(chat("B", finish="length"))
    async with connect(server) as model:
        await model.generate(QUESTION, LETTER)

        assert "logprobs" not in model.features


async def test_the_effort_is_sent_and_is_part_of_the_fingerprint(serve: Serve):
    server = await serve(chat("B"))
    async with connect(server, reasoning_effort="low") as model:
        await model.generate(QUESTION, SHORT)

        assert server.bodies[0]["reasoning_effort"] == "low"
        assert model.fingerprint()["reasoning_effort"] == "low"


async def test_an_effort_declares_a_reasoning_model(serve: Serve):
    server = await serve(answer=thinks_in("reasoning_content"))
    async with connect(server, reasoning_effort="low") as model:
        await model.generate(QUESTION, LETTER)

        assert [limit_of(body) for body in server.bodies] == [1 + ROOM]
        assert "logprobs" not in model.features
    assert connect(server, reasoning_effort="none").room == 0


async def test_an_effort_that_is_not_taken_is_left_out_and_told(serve: Serve):
    def answer(body: Body) -> Reply:
        if "reasoning_effort" in body:
            return refuse("Unrecognized request argument supplied: reasoning_effort", param=None)
        return chat("B")

    async with connect(await serve(answer=answer), reasoning_effort="low") as model:
        assert (await model.generate(QUESTION, SHORT)).text == "B"
        assert any("does not support reasoning_effort" in caveat for caveat in model.caveats())


async def test_thoughts_without_an_answer_are_told(serve: Serve):
    async with connect(await serve(chat(None, reasoning_content="B is right."))) as model:
        generation = await model.generate(QUESTION, SHORT)

        assert generation.text == ""
        assert any("hold thoughts but no answer" in caveat for caveat in model.caveats())


async def test_thoughts_without_an_opening_tag_are_known_once_they_were_seen_to_end(serve: Serve):
    def answer(body: Body) -> Reply:
        return chat("Okay, I say A.", finish="length") if limit_of(body) < 100 else chat(f"{THOUGHT}</think>B")

    server = await serve(answer=answer)
    async with connect(server) as model:
        unknown = await model.generate(QUESTION, SHORT)
        await model.generate(QUESTION, Params(max_tokens=2048))
        known = await model.generate(QUESTION, Params(max_tokens=50, max_tokens_exact=True))
        given_room = await model.generate(QUESTION, SHORT)

    assert unknown.text == "Okay, I say A."
    assert (known.text, known.completions[0].thought) == ("", "Okay, I say A.")
    assert given_room.text == "B"


async def test_models_in_this_process_think_as_well():
    inner = FunctionModel(lambda _messages, _params: f"<think>{THOUGHT}</think>\n\nB")
    model = ReasoningModel(inner, ModelOptions())

    [only] = (await model.generate(QUESTION, SHORT)).completions

    assert (only.text, only.thought) == ("B", THOUGHT)


@pytest.mark.parametrize(
    ("raw", "thought", "answer"),
    [
        ("B", "", "B"),
        ("a < b and [x]", "", "a < b and [x]"),
        ("<think>\n\n</think>\n\nB", "", "B"),
        ("<think>why", "why", ""),
        ("<think>", "", ""),
        ("why</think>B", "why", "B"),
        ("<THINK>why</THINK> B", "why", "B"),
        ("<think>one</think>\n<think>two</think>B", "one\n\ntwo", "B"),
        ("<think>one</think>B<think>two</think>", "one", "B<think>two</think>"),
        ("why\n</think>\n\nB", "why", "B"),
        ('I say "B".</think>B', 'I say "B".', "B"),
        ("<thinking>why</thinking>B", "why", "B"),
        ("<seed:think>why</seed:think>B", "why", "B"),
        ("◁think▷why◁/think▷B", "why", "B"),
        ("<|START_THINKING|>why<|END_THINKING|>B", "why", "B"),
        ("<|channel|>final<|message|>B<|return|>", "", "B"),
        ("<|channel|>analysis<|message|>why", "why", ""),
        (
            "<|channel|>analysis<|message|>one<|end|><|start|>assistant<|channel|>commentary to=tool <|constrain|>json"
            "<|message|>two<|call|><|start|>assistant<|channel|>final<|message|>B<|return|>",
            "one\n\ntwo",
            "B",
        ),
        ("analysisWe need B.assistantfinalB", "We need B.", "B"),
        ("analysisWe need", "We need", ""),
        ("analysis of the text: B", "", "analysis of the text: B"),
    ],
)
def test_thoughts_in_the_text(raw: str, thought: str, answer: str):
    assert split_thought(raw) == (thought, answer)


@pytest.mark.parametrize("text", MENTIONS)
def test_a_text_that_mentions_a_tag_has_no_thoughts(text: str):
    assert split_thought(text) == ("", text)


def test_hostile_texts_take_no_time():
    for piece in (
        "<think>",
        "</think>",
        "<|channel|>",
        "analysisA",
        "[THINK]",
        "assistant",
        "<|channel|>a <|message|>",
    ):
        split_thought(piece * 20_000)
        split_thought("analysisA" + piece * 20_000)


def test_an_answer_that_equals_the_thought_stays():
    assert separated(Completion("B", thought="B")).text == "B"


def test_logprobs_of_a_reply_without_thoughts_stay():
    token = TokenLogprob("B", -0.1)

    assert separated(Completion("B", logprobs=(token,))).logprobs == (token,)


@pytest.mark.parametrize("extra", [{"reasoning": "maybe"}, {"thought_tokens": 0}, {"thought_tokens": "many"}])
def test_a_wrong_option_is_refused(extra: dict[str, Any]):
    with pytest.raises(UsageError, match="The model option"):
        ReasoningModel(FunctionModel(lambda _m, _p: "B"), ModelOptions(extra=extra))
