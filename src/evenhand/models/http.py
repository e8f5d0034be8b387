"""Any HTTP endpoint as a model: a product, a RAG service or an agent server, described in evenhand.toml.

    [http.support]                               # the model http/support
    url = "https://support.example.org/ask"
    headers = {Authorization = "Bearer $SUPPORT_KEY"}
    body = {question = "{{prompt}}", session = "{{session}}"}
    answer = "$.reply.text"

The address is this machine's: a plan names http/support, never where it is. What is no answer is an error.
"""

from __future__ import annotations

import re
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenhand.core import aio
from evenhand.core.config import read_config
from evenhand.core.errors import BadResponseError, EndpointError, check_names
from evenhand.core.files import in_words
from evenhand.core.http import VARIABLE, Client, Hints, Reply, Retryable, expanded
from evenhand.core.types import Completion, Generation, Message, Params, Usage
from evenhand.models.base import PROVIDERS, Model, ModelOptions, estimate_tokens
from evenhand.models.call import as_prompt
from evenhand.models.endpoints import SHARED, holds_secret

_PLACE = re.compile(r"\{\{(\w+)\}\}")
_STEP = re.compile(r"\.?([\w-]+)|\['([^']+)'\]|\[(-?\d+|\*)\]")
_SECRET = re.compile(r"authorization|cookie|key|token|secret", re.IGNORECASE)


class Target(BaseModel):
    """The fields of [http.NAME]; timeout, retries, concurrency and price are those of every model."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    url: str
    method: Literal["POST", "PUT", "GET"] = "POST"
    headers: dict[str, str] = {}
    body: Any = {"messages": "{{messages}}"}
    answer: str = ""
    """The JSONPath of the answer; empty: the whole reply is the answer."""
    stream: Literal["sse", "lines"] | None = None
    session: Literal["cookie", "id"] | None = None
    """What the endpoint knows a conversation by; it is then sent only what is new in it."""
    per_second: Annotated[float, Field(gt=0)] | None = None


@PROVIDERS.register("http")
class HTTPModel(Model):
    """The spec `http/NAME`: the endpoint under [http.NAME] in evenhand.toml; token counts are estimated."""

    takes = frozenset[str]()

    def __init__(self, name: str, options: ModelOptions) -> None:
        self.spec = f"http/{name}"
        self.target = target = _target(name)
        filled = {header: expanded(value, self.spec) for header, value in target.headers.items()}
        hints = Hints(f"url of [http.{name}]", timeout="raise its timeout")
        self._client = Client(
            target.url,
            f"The endpoint of {self.spec}",
            "",
            hints,
            headers={header: text for header, (text, _) in filled.items()},
            timeout=options.timeout,
            retries=options.retries,
            concurrency=options.concurrency,
            per_second=target.per_second,
            method=target.method,
            secrets=[secret for _, found in filled.values() for secret in found.values()],
        )
        self._open: defaultdict[tuple[Message, ...], list[str]] = defaultdict(list)
        """Conversations up to an answer → the sessions that are there, each a cookie or an id."""
        self._replayed = 0

    def fingerprint(self) -> Mapping[str, Any]:
        """Return the spec and the target with the names of variables, not their values."""
        return {"spec": self.spec, "target": self.target.model_dump(exclude={"per_second"}, exclude_defaults=True)}

    def notes(self) -> Sequence[str]:
        if not self._replayed:
            return ()
        return [f"{self.spec}: {self._replayed:,} conversations were begun again, since their session was not there"]

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        started = time.perf_counter()
        texts = await aio.all_of(self._answer(tuple(messages)) for _ in range(params.n))
        used = Usage(
            calls=len(texts),
            prompt_tokens=len(texts) * sum(estimate_tokens(each.content) for each in messages),
            completion_tokens=sum(map(estimate_tokens, texts)),
        )
        return Generation(tuple(map(Completion, texts)), self.spec, used, time.perf_counter() - started)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _answer(self, messages: tuple[Message, ...]) -> str:
        if self.target.session is None:
            return (await self._asked(messages, messages, uuid.uuid4().hex))[0]
        ends = [place for place, each in enumerate(messages) if each.role == "assistant"]
        before = messages[: ends[-1] + 1] if ends else ()
        begins = [0, *(end + 1 for end in ends)]
        if found := self._open.get(before):
            session = found.pop()
        else:
            session = uuid.uuid4().hex if self.target.session == "id" else ""
            self._replayed += bool(ends)
            for start, end in zip(begins, ends, strict=False):  # what was said before, said again
                _, session = await self._asked(messages[:end], messages[start:end], session)
        text, session = await self._asked(messages, messages[begins[-1] :], session)
        self._open[*messages, Message("assistant", text)].append(session)
        return text

    async def _asked(self, messages: Sequence[Message], new: Sequence[Message], session: str) -> tuple[str, str]:
        """Send a conversation, or what is new in it; return the answer and the session, which a cookie may begin."""
        values = {
            "messages": [{"role": each.role, "content": each.content} for each in messages],
            "prompt": as_prompt(new),
            "session": session,
        }
        by_cookie = self.target.session == "cookie"
        data = b"" if self.target.method == "GET" else orjson.dumps(_filled(self.target.body, values))
        query = _filled(self.target.body, values) if self.target.method == "GET" else None
        sent = {"Cookie": session} if by_cookie and session else {}

        def read(reply: Reply) -> tuple[str, str]:
            return self._read(reply), (_cookies(reply, session) if by_cookie else session)

        return (await self._client.post(lambda: data, read, headers=sent, query=query))[0]

    def _read(self, reply: Reply) -> str:
        if not 200 <= reply.status < 300:
            raise self._client.fault(reply)
        try:
            return _answer_in(reply.body, self.target)
        except ValueError as error:
            page = reply.body.lstrip()[:1] == b"<"
            came = f"a web page ({self._client.excerpt(reply.body, 80)!r})" if page else str(error)
            message = f"{self._client.title} sent {came}; check url, body and answer in evenhand.toml."
            if page and not self._client.worked:
                raise EndpointError(message, permanent=True) from error
            fault = BadResponseError(self._client.redact(message))
            fault.was_read = not page
            raise Retryable(fault, max_retries=1) from error


def _target(name: str) -> Target:
    known = read_config().http
    check_names("table [http.NAME] in evenhand.toml", known, name)
    found = known[name]
    own = {field: value for field, value in found.fields.items() if field not in SHARED}
    try:
        target = Target.model_validate(own)
    except ValidationError as error:
        first = error.errors()[0]
        raise found.error(str(first["loc"][0]), f"http/{name}: {in_words(first)}.") from error
    if holds_secret(target.url) or not re.match(r"https?://[^/\s]", target.url):
        raise found.error("url", f"http/{name}: url must be an http address without a password or key ($NAME is one).")
    for header, value in target.headers.items():
        if _SECRET.search(header) and not VARIABLE.search(value):
            raise found.error("headers", f"http/{name}: write {header} with an environment variable, e.g. $MY_KEY.")
    if _STEP.sub("", target.answer.removeprefix("$")):
        raise found.error("answer", f"http/{name}: answer must be a path such as $.choices[0].text.")
    return target


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Return a body with {{prompt}}, {{messages}} and {{session}} filled in; a text that is one of them becomes it."""
    match template:
        case str():
            if (whole := _PLACE.fullmatch(template)) and whole[1] in values:
                return values[whole[1]]
            return _PLACE.sub(lambda found: str(values.get(found[1], found[0])), template)
        case dict():
            return {name: _filled(each, values) for name, each in cast("dict[str, Any]", template).items()}
        case list():
            return [_filled(each, values) for each in cast("list[Any]", template)]
        case _:
            return template


def _answer_in(body: bytes, target: Target) -> str:
    """Return the answer in a reply; raise ValueError that says what came instead."""
    text = body.decode("utf-8", "replace")
    if not target.answer:
        if text.lstrip()[:1] == "<":
            raise ValueError("a web page")
        found = [text]
    elif target.stream is None:
        found = _at(_json(text), target.answer)
    else:
        lines = [line.strip() for line in text.splitlines()]
        if target.stream == "sse":
            lines = [line[5:].strip() for line in lines if line.startswith("data:")]
        found = [each for line in lines if line and line != "[DONE]" for each in _at(_json(line), target.answer)]
    if not found:
        raise ValueError(f"nothing at {target.answer} but {text[:120]!r}")
    if not all(isinstance(each, str) for each in found):
        raise ValueError(f"no text at {target.answer or 'its whole'} but {str(found[0])[:80]!r}")
    if not (answer := "".join(found)).strip():
        raise ValueError("an empty answer")
    return answer


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        raise ValueError(f"no JSON but {' '.join(text.split())[:120]!r}") from None


def _at(value: Any, path: str) -> list[Any]:
    """Return the values at a JSONPath of names, places and [*]; none where it leads nowhere or to null."""
    found = [value]
    for name, quoted, place in _STEP.findall(path.removeprefix("$")):
        now: list[Any] = []
        for each in found:
            if place == "*" and isinstance(each, list):
                now += cast("list[Any]", each)
            elif place and place != "*" and isinstance(each, list):
                now += cast("list[Any]", each)[int(place) :][:1]
            elif not place and isinstance(each, dict) and (name or quoted) in each:
                now.append(cast("dict[str, Any]", each)[name or quoted])
        found = now
    return [each for each in found if each is not None]


def _cookies(reply: Reply, before: str) -> str:
    """Return the cookies of a session after a reply, as they are sent back."""
    known = SimpleCookie(before)
    for name, value in reply.headers.items():
        if name.lower() == "set-cookie":
            try:
                known.load(value)
            except CookieError:
                continue
    return "; ".join(f"{name}={each.coded_value}" for name, each in known.items())
