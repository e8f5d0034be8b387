"""One request as a model: methods ask it as they ask any model, and the request's own form goes with their questions.

The raw messages of its conversation stay unchanged; evaluators read their text. A message that stood in the request is
sent as the client wrote it, with its tool calls, pictures and names. Answers are asked for with all fields of the
request, tools and JSON form among them; thoughts and critics with none of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from evenhand.core.types import Completion, Finish, Generation, Message, Params, Role, Usage, token_count
from evenhand.guards.fields import as_mapping, as_sequence, received_characters, text_of
from evenhand.guards.upstream import BadRequest, CutReply, Upstream
from evenhand.models.base import Feature, Model

CHARACTERS_PER_TOKEN = 4
"""For estimates, where an endpoint does not count."""
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "user",
    "function": "user",
}
_FINISH: Mapping[str, Finish] = {"stop": "stop", "length": "length", "content_filter": "filter"}
_FORM = frozenset(
    {"response_format", "tool_choice", "function_call", "logprobs", "top_logprobs", "n", "stop", "stream", "prediction"}
    | {"stream_options", "verbosity"}
)
"""Fields that apply to answers only, not to intermediate calls."""


def conversation_in(body: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the text of every message of a request; raise BadRequest if it is not a conversation."""
    messages: Any = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("A request needs messages: a list of {role, content}.", "messages")
    return tuple(_worded(each, number) for number, each in enumerate(cast(list[Any], messages)))


def request_body(messages: Sequence[Mapping[str, Any] | Message], params: Mapping[str, Any]) -> dict[str, Any]:
    """Build a request from messages, as `Message` or as mappings."""
    given = cast(object, messages)
    listed = cast(Sequence[object], given) if isinstance(given, list | tuple) else None
    if listed is None or not all(isinstance(each, Message | Mapping) for each in listed):
        raise BadRequest('Messages are a list, e.g. [{"role": "user", "content": "Hello!"}].', "messages")
    raw = [
        {"role": each.role, "content": each.content} if isinstance(each, Message) else dict(each) for each in messages
    ]
    return {**params, "messages": raw}


def last_words(conversation: Sequence[Message]) -> str:
    return next((each.content for each in reversed(conversation) if each.role == "user"), conversation[-1].content)


def content_words(content: Any) -> str:
    """Return the text of a message's content; other content is named in brackets."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(_part(part) for part in cast(list[Any], content))


def is_plain(body: Mapping[str, Any]) -> bool:
    """Return whether the conversation is text only, so that any model can read it."""
    return not body.get("tools") and all(
        isinstance(each.get("content"), str) and each["role"] in ("system", "user", "assistant") and len(each) == 2
        for each in body["messages"]
    )


def _worded(message: Any, number: int) -> Message:
    raw: dict[str, Any] = cast(dict[str, Any], message) if isinstance(message, dict) else {}
    role = _ROLES.get(str(raw.get("role")))
    if role is None:
        place = f"messages[{number}]"
        raise BadRequest(f"{place} needs a role: system, user, assistant or tool.", place)
    return Message(role, content_words(raw.get("content")))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    named = cast(Mapping[str, Any], part)
    text = named.get("text") or named.get("refusal")
    return text if isinstance(text, str) else f"[{str(named.get('type') or 'part').removesuffix('_url')}]"


class WordlessAnswer(Exception):  # noqa: N818 - an end, not a fault
    """The model's first answer has no words to work on: tool calls alone, a refusal, a filter, nothing."""

    def __init__(self, answer: RawAnswer, generation: Generation) -> None:
        super().__init__("the answer has no words to check")
        self.answer = answer
        self.generation = generation


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """One unchanged answer of the upstream."""

    text: str
    choice: Mapping[str, Any]
    reply: Mapping[str, Any]

    @property
    def message(self) -> Mapping[str, Any]:
        return self.choice.get("message") or {}

    @property
    def finish(self) -> str:
        return str(self.choice.get("finish_reason") or "stop")

    @property
    def refusal(self) -> str:
        refusal = self.message.get("refusal")
        return refusal if isinstance(refusal, str) else ""


class Request:
    """A chat completions body with its conversation in words, and the upstream's answers so far."""

    def __init__(self, body: Mapping[str, Any], upstream: Upstream) -> None:
        self.body = body
        self.upstream = upstream
        self.conversation = conversation_in(body)
        self.response_format: Any = body.get("response_format")
        self.answers: list[RawAnswer] = []
        self.calls = 0
        """The number of requests for an answer."""
        self.started = time.perf_counter()
        self.seconds: dict[str, float] = {"answer": 0.0, "revision": 0.0}
        self._raw = {id(said): raw for said, raw in zip(self.conversation, body["messages"], strict=True)}

    def holds(self, messages: Sequence[Message]) -> bool:
        """Return whether the messages continue this conversation."""
        return any(id(each) in self._raw for each in messages)

    def raw(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The messages as they are sent: the client's as they came, ours in the same form.

        What a method adds for the user is joined to what the user said, since many models take no two turns of one
        speaker after each other.
        """
        system = "developer" if any(each.get("role") == "developer" for each in self.body["messages"]) else "system"
        sent: list[dict[str, Any]] = []
        for each in messages:
            if (own := self._raw.get(id(each))) is not None:
                sent.append(own)
            elif each.role == "user" and sent and sent[-1].get("role") == "user":
                sent[-1] = {**sent[-1], "content": _joined(sent[-1].get("content"), each.content)}
            else:
                sent.append({"role": system if each.role == "system" else each.role, "content": each.content})
        return sent

    def answer_body(self, messages: Sequence[Message], *, first: bool) -> dict[str, Any]:
        """The request with these messages; the first answer may call tools, a revision only words it again."""
        body = {**self.body, "messages": self.raw(messages)}
        return body if first else {**body, **_without_tools(self.body)}

    async def answer(self, messages: Sequence[Message], n: int = 1) -> Generation:
        """Answers with all fields of the request."""
        first = not self.answers
        body = {**self.answer_body(messages, first=first), "n": n}
        self.calls += 1
        began = time.perf_counter()
        reply = await self.upstream.chat(body)
        self.seconds["answer" if first else "revision"] += time.perf_counter() - began
        answers = [raw_answer(choice, reply) for choice in _choices(reply)[:n]]
        used = used_by(reply, body)
        self.answers += answers
        completions = tuple(map(_completion, answers))
        generation = Generation(completions, self.upstream.spec, used, time.perf_counter() - began)
        if first and (answers[0].refusal or not answers[0].text.strip()):
            raise WordlessAnswer(answers[0], generation)
        return generation

    async def thought(self, messages: Sequence[Message], params: Params) -> Generation:
        """Generate intermediate text without the request's format."""
        if is_plain(self.body):
            plain = tuple(Message(each["role"], each["content"]) for each in self.raw(messages))
            return await self.upstream.model.generate(plain, params)
        body = {key: value for key, value in self.body.items() if key not in _FORM}
        body |= {"messages": self.raw(messages), **_without_tools(self.body)}
        began = time.perf_counter()
        reply = await self.upstream.chat(body)
        completion = _completion(raw_answer(_choices(reply)[0], reply))
        return Generation((completion,), self.upstream.spec, used_by(reply, body), time.perf_counter() - began)


class RequestModel(Model):
    """A request in the place of a model: for answers, or for thoughts and all other calls of a method."""

    def __init__(self, request: Request, *, answers: bool) -> None:
        self._request = request
        self._answers = answers
        self._plain = request.upstream.model
        self.spec = request.upstream.spec
        self.free = self._plain.free

    @property
    def features(self) -> frozenset[Feature]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._plain.features

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        if self._answers:
            return await self._request.answer(messages, params.n)
        if self._request.holds(messages):
            return await self._request.thought(messages, params)
        return await self._plain.generate(messages, params)


def raw_answer(choice: Mapping[str, Any], reply: Mapping[str, Any]) -> RawAnswer:
    message = choice.get("message")
    if not isinstance(message, Mapping):
        raise CutReply("The upstream sent an answer without a message.")
    return RawAnswer(text_of(cast(Mapping[str, Any], message).get("content")), choice, reply)


def written_answer(text: str) -> RawAnswer:
    """An answer that a method wrote itself, in the upstream's form."""
    return RawAnswer(text, {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}, {})


def _completion(answer: RawAnswer) -> Completion:
    return Completion(answer.text, _FINISH.get(answer.finish, "other"), answer.refusal or None)


def usage_in(reply: Mapping[str, Any]) -> Usage:
    used: Any = reply.get("usage")
    counts: dict[str, Any] = cast(dict[str, Any], used) if isinstance(used, dict) else {}
    return Usage(
        calls=1,
        prompt_tokens=token_count(counts.get("prompt_tokens")),
        completion_tokens=token_count(counts.get("completion_tokens")),
    )


def used_by(reply: Mapping[str, Any], body: Mapping[str, Any]) -> Usage:
    """Return the usage that a reply reports; where it reports none, an estimate of what was sent and received."""
    used = usage_in(reply)
    if used.tokens:
        return used
    messages = (as_mapping(as_mapping(each).get("message")) for each in as_sequence(reply.get("choices")))
    received = sum(map(received_characters, messages))
    return replace(used, prompt_tokens=sent_tokens(body), completion_tokens=received // CHARACTERS_PER_TOKEN)


def sent_tokens(body: Mapping[str, Any]) -> int:
    """Estimate the tokens of a request: of its messages, its tools or its inputs."""
    sent = [body.get(name) for name in ("messages", "tools", "functions", "input", "prompt") if body.get(name)]
    return sum(map(_characters, sent)) // CHARACTERS_PER_TOKEN + 1


def _characters(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(_characters, cast(Mapping[str, Any], value).values()))
    if isinstance(value, list):
        return sum(map(_characters, cast(list[Any], value)))
    return len(value) if isinstance(value, str) else CHARACTERS_PER_TOKEN * isinstance(value, int)


def _choices(reply: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    choices: Any = reply.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(each, dict) for each in choices):  # pyright: ignore[reportUnknownVariableType]
        raise CutReply("The upstream sent no answer.")
    return cast(list[Mapping[str, Any]], choices)


def _without_tools(body: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the tools, which the conversation may mention, but forbid calling them."""
    none = {"tools": "tool_choice", "functions": "function_call"}
    return {choice: "none" for name, choice in none.items() if body.get(name)}


def _joined(content: Any, text: str) -> Any:
    if isinstance(content, list):
        return [*cast(list[Any], content), {"type": "text", "text": text}]
    return f"{content}\n\n{text}" if content else text
