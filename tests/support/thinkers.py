"""Servers that imitate those that people run reasoning models on: how they send thoughts, and what they refuse."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from support.server import Body, ChatServer, Reply, chat, completion, refuse, reply_with

Say = Callable[[Body], str]
Server = Callable[[Body], Reply]

THOUGHT = 'The user asks who. Nothing says so: {"rating": 9}, I am sorry. A or B? I pick B.'
NEEDED = 40
"""Tokens that the model needs for its thoughts; with fewer, its reply holds no answer."""
MENTIONS = (
    "To mark thoughts, the model writes <think> before them. Then bread is baked.",
    "The model ends its thoughts with </think> and then gives the answer.",
    "Use `[THINK]` in Mistral prompts, as the manual says.",
    "Code:\n```python\ntext = text.split('</think>')[1]\n```\nThat is all.",
    "It writes:\n```\nI see.\n</think>\nYes.\n```\nSo split it.",
    'Out of "I see.</think>Yes." it makes "Yes."',
    "A template looks like this: <think>thoughts</think> answer.",
    "Harmony writes <|channel|>analysis<|message|>thoughts<|end|> first.",
)
"""Answers that speak of thoughts and hold none."""
HARMONY = ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>")


def limit_of(body: Body) -> int:
    return body.get("max_tokens") or body.get("max_completion_tokens") or 10**6


def sensible(body: Body) -> str:
    """B, two lines where a judge is asked for them, or the smallest object under the schema that the request names."""
    form = body.get("response_format")
    if form is None and "Bias: N" in str(body["messages"][-1]["content"]):
        return "Bias: 1 - none\nRelevancy: 9 - it fits"
    return "B" if form is None else orjson.dumps(_instance(form["json_schema"]["schema"])).decode()


def _instance(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][-1]
    match schema["type"]:
        case "object":
            return {name: _instance(each) for name, each in schema["properties"].items()}
        case "array":
            return [_instance(schema["items"])] * schema.get("minItems", 1)
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case _:
            return "It is not told in the passage."


def thinks_in(field: str, say: Say = sensible, needed: int = NEEDED) -> Server:
    """Thoughts in a field of the message."""

    def answer(body: Body) -> Reply:
        if limit_of(body) < needed:
            return reply_with(completion(None, finish="length", **{field: THOUGHT[:10]}))
        return reply_with(completion(say(body), **{field: THOUGHT}))

    return answer


def thinks_inline(opening: str, closing: str, say: Say = sensible) -> Server:
    """A server without a reasoning parser: thoughts are part of the text."""

    def answer(body: Body) -> Reply:
        if limit_of(body) < NEEDED:
            return chat(f"{opening}{THOUGHT[: 10 if limit_of(body) > 1 else 0]}", finish="length", logprobs=True)
        return chat(f"{opening}{THOUGHT}{closing}{say(body)}")

    return answer


def o_series(body: Body) -> Reply:
    """OpenAI's o-series and gpt-5: thoughts are hidden but counted, and several parameters are refused."""
    for name in ("max_tokens", "temperature", "logprobs", "seed", "stop"):
        if name in body:
            return refuse(f"Unsupported parameter: '{name}' is not supported with this model.", param=name)
    enough = limit_of(body) >= NEEDED
    sent = completion(sensible(body)) if enough else completion("", finish="length")
    sent["usage"]["completion_tokens_details"] = {"reasoning_tokens": 3}
    return reply_with(sent)


def modern(body: Body) -> Reply:
    """A reasoning model as gateways serve it now: it takes max_completion_tokens only, and sends its thoughts along."""
    for name in ("max_tokens", "temperature"):
        if name in body:
            return refuse(f"Unsupported parameter: '{name}' is not supported with this model.", param=name)
    return thinks_in("reasoning_content")(body)


def strips(body: Body) -> Reply:
    """A gateway that removes thoughts and does not count them."""
    return chat("", finish="length") if limit_of(body) < NEEDED else chat(sensible(body))


def duplicates(body: Body) -> Reply:
    """A gateway that sends the thoughts in a field and again at the start of the text."""
    if limit_of(body) < NEEDED:
        return chat(THOUGHT[:10], finish="length", reasoning=THOUGHT[:10])
    return chat(f"{THOUGHT}\n\n{sensible(body)}", reasoning=THOUGHT)


def in_blocks(body: Body) -> Reply:
    """A gateway to Anthropic: the content is a list of blocks."""
    blocks: Any = [{"type": "thinking", "thinking": THOUGHT, "signature": "x"}]
    if limit_of(body) < NEEDED:
        return chat(blocks, finish="max_tokens")
    return chat([*blocks, {"type": "redacted_thinking"}, {"type": "text", "text": sensible(body)}], finish="end_turn")  # pyright: ignore


SERVERS: dict[str, Server] = {
    "deepseek-r1 and llama.cpp": thinks_in("reasoning_content"),
    "vllm and openrouter": thinks_in("reasoning"),
    "ollama": thinks_in("thinking"),
    "qwen3 without a parser": thinks_inline("<think>\n", "\n</think>\n\n"),
    "magistral": thinks_inline("[THINK]", "[/THINK]"),
    "gpt-oss in harmony": thinks_inline(*HARMONY),
    "gpt-oss without special tokens": thinks_inline("analysis", "assistantfinal"),
    "o-series and gpt-5": o_series,
    "max_completion_tokens and thoughts": modern,
    "gateway that strips": strips,
    "gateway that duplicates": duplicates,
    "gateway with blocks": in_blocks,
}


@contextmanager
def in_thread(server: Server) -> Iterator[ChatServer]:
    """The server on a loop of its own, for tests that run a command."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    running = asyncio.run_coroutine_threadsafe(ChatServer(answer=server).start(), loop).result()
    try:
        yield running
    finally:
        asyncio.run_coroutine_threadsafe(running.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
