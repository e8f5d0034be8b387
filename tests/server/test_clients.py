"""Real clients, unchanged, against the server."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import openai
import pytest
from pydantic import BaseModel

from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, Served, route, streamed
from support.server import chat, refuse, reply_with

T = TypeVar("T")
HELLO: Any = [{"role": "user", "content": "Hello?"}]
TOOLS: Any = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


async def synchronous(guard: Served, work: Callable[[openai.OpenAI], T]) -> T:
    """The plain client, in a thread as the server runs here."""

    def run() -> T:
        with openai.OpenAI(base_url=guard.url, api_key="none", max_retries=0) as client:
            return work(client)

    return await asyncio.to_thread(run)


async def test_openai_reads_the_answer_and_the_record(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE), chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await synchronous(guard, lambda client: client.chat.completions.create(model="guarded", messages=HELLO))

    assert answer.choices[0].message.content == CLEAN
    assert answer.usage is not None
    assert answer.usage.total_tokens == 25 * len(behind.bodies)
    assert answer.model_extra is not None
    assert answer.model_extra["evenhand"]["action"] == "revised"


async def test_openai_reads_headers(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    raw = await synchronous(
        guard, lambda client: client.chat.completions.with_raw_response.create(model="guarded", messages=HELLO)
    )

    assert raw.headers["x-evenhand-action"] == "passed"
    assert raw.parse()._request_id


async def test_openai_streams(serve: Serve, guarding: Guarding):
    behind = await serve(streamed(["The weather is mild. ", "The park is open."]))
    guard = await guarding(route(behind.url))

    def work(client: openai.OpenAI) -> list[Any]:
        options: Any = {"include_usage": True}
        return list(
            client.chat.completions.create(model="guarded", messages=HELLO, stream=True, stream_options=options)
        )

    found = await synchronous(guard, work)

    assert "".join(each.choices[0].delta.content or "" for each in found if each.choices) == (
        "The weather is mild. The park is open."
    )
    assert found[-1].usage.total_tokens > 0


async def test_openai_streams_asynchronously(serve: Serve, guarding: Guarding):
    behind = await serve(streamed(["The weather is mild. ", "The park is open."]))
    guard = await guarding(route(behind.url))

    async with openai.AsyncOpenAI(base_url=guard.url, api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(model="guarded", messages=HELLO, stream=True)
        texts = [each.choices[0].delta.content or "" async for each in stream]
        async with client.chat.completions.stream(model="guarded", messages=HELLO) as events:
            final = await events.get_final_completion()

    assert "".join(texts) == "The weather is mild. The park is open."
    assert final.choices[0].message.content == "The weather is mild. The park is open."


async def test_openai_gets_tool_calls_both_ways(serve: Serve, guarding: Guarding):
    def answer(body: Any):
        if body.get("stream"):
            return streamed([], tool_calls=[CALL], finish="tool_calls")
        return chat(None, finish="tool_calls", tool_calls=[CALL])

    behind = await serve(answer=answer)
    guard = await guarding(route(behind.url))

    async with openai.AsyncOpenAI(base_url=guard.url, api_key="none", max_retries=0) as client:
        whole = await client.chat.completions.create(model="guarded", messages=HELLO, tools=TOOLS)
        async with client.chat.completions.stream(model="guarded", messages=HELLO, tools=TOOLS) as events:
            final = await events.get_final_completion()

    for found in (whole, final):
        calls: Any = found.choices[0].message.tool_calls
        assert (calls[0].id, calls[0].function.name, calls[0].function.arguments) == ("c1", "look", "{}")


async def test_openai_parses_json(serve: Serve, guarding: Guarding):
    behind = await serve(chat('{"answer": "It is mild."}'))
    guard = await guarding(route(behind.url))
    schema: Any = {
        "type": "json_schema",
        "json_schema": {
            "name": "reply",
            "schema": {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]},
        },
    }

    answer = await synchronous(
        guard,
        lambda client: client.chat.completions.create(model="guarded", messages=HELLO, response_format=schema),
    )

    assert answer.choices[0].message.content == '{"answer": "It is mild."}'
    assert behind.bodies[0]["response_format"] == schema


async def test_openai_lists_models_and_completes(serve: Serve, guarding: Guarding):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url))

    listed = await synchronous(guard, lambda client: [each.id for each in client.models.list()])
    one = await synchronous(guard, lambda client: client.models.retrieve("guarded"))
    text = await synchronous(guard, lambda client: client.completions.create(model="guarded", prompt="Say:"))

    assert listed == [one.id] == ["guarded"]
    assert text.choices[0].text == CLEAN


async def test_openai_reads_responses(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE), chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await synchronous(guard, lambda client: client.responses.create(model="guarded", input="Hello?"))

    assert (answer.output_text, answer.status) == (CLEAN, "completed")
    assert answer.usage is not None
    assert answer.usage.total_tokens == 50
    assert answer.model_extra is not None
    assert answer.model_extra["evenhand"]["action"] == "revised"


async def test_openai_streams_responses(serve: Serve, guarding: Guarding):
    behind = await serve(streamed(["The weather is mild. ", "The park is open."], tool_calls=[CALL]))
    guard = await guarding(route(behind.url))
    look: Any = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}

    async with (
        openai.AsyncOpenAI(base_url=guard.url, api_key="none", max_retries=0) as client,
        client.responses.stream(model="guarded", input="Hello?", tools=[look]) as events,
    ):
        kinds = [each.type async for each in events]
        final = await events.get_final_response()

    assert kinds[-1] == "response.completed"
    assert final.output_text == "The weather is mild. The park is open."
    call: Any = final.output[1]
    assert (call.call_id, call.name, call.arguments) == ("c1", "look", "{}")


async def test_openai_parses_responses(serve: Serve, guarding: Guarding):
    class Reply(BaseModel):
        answer: str

    behind = await serve(chat('{"answer": "It is mild."}'), chat(RUDE))
    guard = await guarding(route(behind.url, policy="block"))

    def work(client: openai.OpenAI) -> list[Any]:
        return [client.responses.parse(model="guarded", input="Hello?", text_format=Reply) for _ in range(2)]

    parsed, blocked = await synchronous(guard, work)

    assert parsed.output_parsed == Reply(answer="It is mild.")
    assert blocked.output_parsed is None
    assert blocked.incomplete_details.reason == "content_filter"
    assert blocked.output[0].content[0].type == "refusal"


async def test_openai_hears_of_a_response_that_breaks(serve: Serve, guarding: Guarding):
    behind = await serve(streamed(["The weather is mild. ", "The park is open. "], fail=True))
    guard = await guarding(route(behind.url))

    async with openai.AsyncOpenAI(base_url=guard.url, api_key="none", max_retries=0) as client:
        stream = await client.responses.create(model="guarded", input="Hello?", stream=True)
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass


async def test_openai_reads_embeddings(serve: Serve, guarding: Guarding):
    behind = await serve(reply_with({"data": [{"embedding": [0.5, -1]}], "usage": {"prompt_tokens": 3}}))
    guard = await guarding(route(behind.url))

    answer = await synchronous(guard, lambda client: client.embeddings.create(model="guarded", input="Hello?"))

    assert answer.data[0].embedding == [0.5, -1.0]
    assert answer.usage.total_tokens == 3


@pytest.mark.parametrize(
    ("reply", "model", "expected"),
    [
        (chat(CLEAN), "other", openai.NotFoundError),
        (refuse("no", status=400), "guarded", openai.BadRequestError),
        (refuse("slow", status=429), "guarded", openai.RateLimitError),
        (refuse("oops", status=500), "guarded", openai.InternalServerError),
    ],
)
async def test_openai_raises_its_own_errors(
    serve: Serve, guarding: Guarding, reply: Any, model: str, expected: type[openai.APIStatusError]
):
    behind = await serve(reply)
    guard = await guarding(route(behind.url))

    with pytest.raises(expected) as caught:
        await synchronous(guard, lambda client: client.chat.completions.create(model=model, messages=HELLO))

    assert isinstance(caught.value.body, dict)
    assert caught.value.body["message"]


async def test_openai_hears_of_a_stream_that_breaks(serve: Serve, guarding: Guarding):
    behind = await serve(streamed(["The weather is mild. ", "The park is open. "], fail=True))
    guard = await guarding(route(behind.url))

    async with openai.AsyncOpenAI(base_url=guard.url, api_key="none", max_retries=0) as client:
        stream = await client.chat.completions.create(model="guarded", messages=HELLO, stream=True)
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass
