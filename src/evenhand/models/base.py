"""The Model interface, its options and wrappers, and the registry of providers; `load.py` loads a model by its spec."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, TypeVar

import orjson

from evenhand.core.errors import EndpointError, ModelError, UsageError
from evenhand.core.preamble import Preamble
from evenhand.core.registry import Registry
from evenhand.core.types import Completion, Cut, Generation, Message, Params, Price, TokenLogprob, Unscored

START = "\n"
"""What each text is read after, so that its first token has a probability, too."""


def log_likelihood(tokens: Sequence[TokenLogprob], after: int = 0) -> tuple[float, int]:
    """Return the sum of the log-probabilities, and the number, of the tokens that end behind character `after`."""
    total, count, end = 0.0, 0, 0
    for token in tokens:
        end += len(token.token)
        if end > after:
            total, count = total + token.logprob, count + 1
    return total, count


HOPELESS = 20
"""Failed calls, without one that succeeded, after which an endpoint counts as not working."""
Feature = Literal["logprobs", "schema", "seed", "logits", "likelihood", "tools", "plays"]
"""What a model can do beyond answering; one that `plays` calls the tools of a case itself, to its end."""
ROLE: ContextVar[str] = ContextVar("role", default="")
"""The role in which a session asks the model, for functions that want to know; empty outside of sessions."""
TOOLBOX: ContextVar[Callable[[], Any] | None] = ContextVar("toolbox", default=None)
"""Makes the tools of the case at hand, for functions that call tools themselves; None outside of such cases."""


class Model(ABC):
    """Generates text: `await model.generate(messages, params)`; safe to call concurrently."""

    spec: str
    features: ClassVar[frozenset[Feature]] | frozenset[Feature] = frozenset()
    """What requests can rely on. A model drops a feature when its server turns out to lack it."""
    free: bool = False
    """Whether calls cost no money (in-process models)."""
    fixed: bool = False
    """Whether the fingerprint says which weights answer. What is behind the name of an endpoint may change."""
    slots: int | None = None
    """How many calls are computed at once, if limited. More would wait and evict cached prefixes."""
    room: int = 0
    """How many tokens a reply may take for thoughts, on top of `max_tokens`."""
    endpoints: int = 1
    """How many endpoints share the calls; each has a concurrency limit of its own."""
    queued: bool = False
    """Whether replies may take hours, so that nobody waits for the first one to learn from it."""
    continues_text: bool = False
    """Whether it has no chat template and continues the text that it is sent, as base models do."""
    preamble: Preamble | None = None
    """What a session puts before every conversation in which the model answers for the audited system."""
    replicable: ClassVar[bool] = False
    """Whether `ray/` can run copies of it: it computes in its own process and depends on nothing outside."""
    takes: ClassVar[frozenset[str] | None] = None
    """The options that its provider takes in a spec, besides those of all models; None: any."""

    @classmethod
    def unavailable(cls) -> str | None:
        """Return why this provider cannot be used here and how to fix that; None if it can be used."""
        return None

    @abstractmethod
    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        """Answer one request, with retries where they can help; raise ModelError if all fail."""

    def fingerprint(self) -> Mapping[str, Any]:
        """Return what identifies this model beyond its spec (endpoint, file hash, versions); no secrets."""
        return {"spec": self.spec}

    async def settled(self) -> None:
        """Wait for a first call that is under way, since its reply shows which features the model really has."""

    def caveats(self) -> Sequence[str]:
        """Return limitations found while generating that readers of the results should know."""
        return ()

    def notes(self) -> Sequence[str]:
        """Return what was sent or done otherwise than readers may expect, without a bearing on the results."""
        return ()

    def learned(self) -> Mapping[str, Any]:
        """Return what calls have shown about the endpoint, so that a resumed run asks as it did before."""
        return {}

    def recall(self, learned: Mapping[str, Any]) -> None:
        """Take over what `learned` returned in an earlier session."""

    async def aclose(self) -> None:
        """Release connections, threads and memory."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class WrappedModel(Model):
    """A model that wraps another one and delegates everything but `generate`."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.spec = inner.spec
        self.free = inner.free
        self.slots = inner.slots
        self.endpoints = inner.endpoints
        self.continues_text = inner.continues_text

    @property
    def fixed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.fixed

    @property
    def room(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.room

    @property
    def features(self) -> frozenset[Feature]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.features

    def fingerprint(self) -> Mapping[str, Any]:
        return self.inner.fingerprint()

    async def settled(self) -> None:
        await self.inner.settled()

    def caveats(self) -> Sequence[str]:
        return self.inner.caveats()

    def notes(self) -> Sequence[str]:
        return self.inner.notes()

    def learned(self) -> Mapping[str, Any]:
        return self.inner.learned()

    def recall(self, learned: Mapping[str, Any]) -> None:
        self.inner.recall(learned)

    async def aclose(self) -> None:
        await self.inner.aclose()


class BorrowedModel(WrappedModel):
    """A model that belongs to somebody else, who closes it."""

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        return await self.inner.generate(messages, params)

    async def aclose(self) -> None:
        pass


class HopefulModel(WrappedModel):
    """A model whose error is permanent once HOPELESS calls have failed and none has succeeded.

    Until one has succeeded, no more than HOPELESS calls are in flight.
    """

    _failures = 0
    _succeeded = False
    _hopeless: EndpointError | None = None

    def __init__(self, inner: Model) -> None:
        super().__init__(inner)
        self._first = asyncio.Semaphore(HOPELESS)

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        if not self._succeeded:
            async with self._first:
                if not self._succeeded:
                    return await self._tried(messages, params)
        return await self.inner.generate(messages, params)

    async def _tried(self, messages: Sequence[Message], params: Params) -> Generation:
        if self._hopeless is not None:
            raise self._hopeless
        try:
            generation = await self.inner.generate(messages, params)
        except ModelError as error:
            self._failures += 1
            if self._succeeded or self._failures < HOPELESS:
                raise
            self._hopeless = EndpointError(str(error), permanent=True)
            self._hopeless.exit_code = 4
            raise self._hopeless from error
        self._succeeded = True
        return generation


class PromptedModel(BorrowedModel):
    """A model under its own system prompt. Sessions add it, because they know who answers and who judges."""

    def __init__(self, inner: Model, preamble: Preamble) -> None:
        super().__init__(inner)
        self.preamble = preamble


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Options shared by all providers; each uses those that apply to it."""

    base_url: str | None = None
    """The endpoint; several, joined by commas, are a pool."""
    concurrency: int = 64
    """Most calls in flight; for in-process models, a hint for their slots."""
    timeout: float = 120.0
    """Seconds to wait for an answer once connected."""
    retries: int = 6
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Provider-specific settings, e.g. `context` for local models or `extra_body` for endpoints."""
    key: str | None = None
    """The environment variable with the key; None: the provider's usual one, empty: none."""
    price: Price | None = None
    provider: str | None = None
    """The registered provider; None: the one that spec and config files name."""


PROVIDERS: Registry[type[Model]] = Registry("model", package="evenhand.models")


def split_spec(spec: str) -> tuple[str, str]:
    """Split `provider/name` into (provider, name)."""
    provider, slash, name = spec.partition("/")
    if provider == "fake" and not slash:
        return "fake", "echo"
    if provider in ("http:", "https:"):  # not quoted, since it may hold a key
        raise UsageError("An address is not a model spec; write openai/NAME, and the address with --base-url.")
    if not slash or not name:
        raise UsageError(
            f"{spec!r} is not a model spec; write provider/name, e.g. local/builtin or openai/gpt-4o-mini "
            "(`evenhand models` lists the providers)."
        )
    return provider, name


def check_request(model: Model, params: Params) -> None:
    """Raise UsageError if the request needs what the model would silently ignore."""
    if params.given and "likelihood" not in model.features:
        raise UsageError(
            f"{model.spec} cannot score given texts; use a local/ or hf/ model, or an endpoint that echoes prompts "
            "with their log-probabilities ('openai/NAME?echo=true')."
        )
    if params.steering is not None and "logits" not in model.features:
        raise UsageError(
            f"Steering needs the logits of every token, which {model.spec} does not provide; use an hf/ model."
        )


def all_messages(messages: Sequence[Message], params: Params) -> Iterator[Message]:
    """Yield all that a request makes the model read: with texts to score, messages to steer away from, and tools."""
    yield from messages
    for tool in params.tools:
        yield Message("user", orjson.dumps(tool).decode())
    for text in params.given:
        yield Message("user", text)
    for each in params.steering.against if params.steering is not None else ():
        yield from each


async def close_all(models: Sequence[Model]) -> None:
    """Close all models, even if closing one of them fails."""
    await asyncio.gather(*(model.aclose() for model in models), return_exceptions=True)


def estimate_tokens(text: str) -> int:
    """Estimate the token count of a text at four characters per token, without a tokenizer."""
    return max(1, (len(text) + 3) // 4)


T = TypeVar("T")

MORE = 4
"""How many times as many tokens the second request allows."""


async def read_replies(
    ask: Callable[[Params], Awaitable[Generation]], params: Params, read: Callable[[Completion], T | Unscored]
) -> list[T | Unscored]:
    """What `read` finds in each reply, or `Cut`. If all were cut, they are asked for again, once.

    A limit of the user's own is not raised. Replies without any text are not repeated: the model layer has done that.
    """
    completions = (await ask(params)).completions
    found = [_read(each, read, params) for each in completions]
    cut = all(isinstance(each, Cut) for each in found) and any(each.text.strip() for each in completions)
    if not cut or params.max_tokens is None or params.max_tokens_exact:
        return found
    params = replace(params, max_tokens=MORE * params.max_tokens)
    return [_read(each, read, params) for each in (await ask(params)).completions]


def _read(completion: Completion, read: Callable[[Completion], T | Unscored], params: Params) -> T | Unscored:
    found = read(completion)
    # A reply of one token is meant to end there: it is read by its alternatives.
    if not isinstance(found, Unscored) or completion.finish != "length" or params.max_tokens == 1:
        return found
    if completion.thought and not completion.text.strip():
        return Cut("cut while the model was thinking")
    limit = "the token limit" if params.max_tokens is None else f"{params.max_tokens:,} tokens"
    return Cut(f"cut at {limit}", completion.text)
