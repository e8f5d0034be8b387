"""The completions call with an echo: the log-probabilities of the prompt's own tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import orjson

from evenhand.core.errors import BadResponseError
from evenhand.core.http import Client, Reply
from evenhand.core.types import Completion, Generation, TokenLogprob, Usage, token_count
from evenhand.models.given import START


def address(chat: str) -> str:
    """Return the URL of the completions call beside that of chat completions."""
    parts = urlsplit(chat)
    return urlunsplit(parts._replace(path=parts.path.removesuffix("/chat/completions") + "/completions"))


async def score(client: Client, name: str, spec: str, texts: Sequence[str]) -> Generation:
    """Return the texts with the log-probability of each token, in one request."""
    # One token is generated and thrown away: some servers refuse to generate none.
    body = {"model": name, "prompt": [START + text for text in texts], "echo": True, "logprobs": 1}
    request = orjson.dumps({**body, "max_tokens": 1, "temperature": 0})

    def read(reply: Reply) -> Generation:
        if reply.status != 200:
            raise client.fault(reply)
        try:
            return parse(orjson.loads(reply.body), texts, spec)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise BadResponseError(
                f"{client.title} does not echo prompts with their log-probabilities ({error}); remove echo=true from "
                "the model's spec."
            ) from error

    generation, _ = await client.post(lambda: request, read)
    return generation


def parse(reply: Any, texts: Sequence[str], spec: str) -> Generation:
    """Read a reply; raise ValueError if it does not hold the log-probabilities of all texts."""
    choices = sorted(reply["choices"], key=lambda each: each["index"])
    if len(choices) != len(texts):
        raise ValueError(f"{len(choices)} choices for {len(texts)} prompts")
    completions = tuple(
        Completion(text, logprobs=_tokens(choice["logprobs"], text))
        for choice, text in zip(choices, texts, strict=True)
    )
    usage: Any = reply.get("usage") or {}
    read = token_count(usage.get("prompt_tokens"))
    return Generation(completions, spec, Usage(1, read or sum(len(each.logprobs or ()) for each in completions)))


def _tokens(logprobs: Any, text: str) -> tuple[TokenLogprob, ...]:
    """Return the tokens of the text: behind a special token and the start, and before what was generated."""
    pairs = list(zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True))
    first = "".join(token for token, _ in pairs).index(START + text) + len(START)
    found: list[TokenLogprob] = []
    end = 0
    for token, value in pairs:
        begin, end = end, end + len(token)
        if begin < first + len(text) and end > first:
            if not isinstance(value, int | float):
                raise ValueError(f"the token {token!r} has no log-probability")
            found.append(TokenLogprob(token, float(value)))
    if "".join(each.token for each in found) != text:
        raise ValueError("the tokens do not make up the text")
    return tuple(found)
