"""The Model interface, the registry of providers, and `load_model`, which loads a model by its spec."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

from evenhand.core.errors import UsageError
from evenhand.core.registry import Registry
from evenhand.core.types import Generation, Message, Params, Price

Feature = Literal["logprobs", "schema", "seed", "logits", "likelihood"]
ROLE: ContextVar[str] = ContextVar("role", default="")
"""The role in which a session asks the model, for functions that want to know; empty outside of sessions."""


class Model(ABC):
    """Generates text: `await model.generate(messages, params)`; safe to call concurrently."""

    spec: str
    features: ClassVar[frozenset[Feature]] | frozenset[Feature] = frozenset()
    """What requests can rely on. A model drops a feature when its server turns out to lack it."""
    free: bool = False
    """Whether calls cost no money (in-process models)."""
    slots: int | None = None
    """How many calls are computed at once, if limited. More would wait and evict cached prefixes."""
    room: int = 0
    """How many tokens a reply may take for thoughts, on top of `max_tokens`."""
    endpoints: int = 1
    """How many endpoints share the calls; each has a concurrency limit of its own."""
    continues_text: bool = False
    """Whether it has no chat template and continues the text that it is sent, as base models do."""
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
    def room(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.room

    @property
    def features(self) -> frozenset[Feature]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.features

    def fingerprint(self) -> Mapping[str, Any]:
        return self.inner.fingerprint()

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
    if not slash or not name:
        raise UsageError(
            f"{spec!r} is not a model spec; write provider/name, e.g. local/builtin or openai/gpt-4o-mini "
            "(`evenhand models` lists the providers)."
        )
    return provider, name


def load_model(spec: str | Model, options: ModelOptions | None = None) -> Model:
    """Load the model named by `spec`; a provider's class is called as `cls(name, options)`.

    A field of `options` that has its default value may be set by a config file; the spec's own options win over both.
    A model that is passed in place of a spec is used as it is.
    """
    from evenhand.models.endpoints import provider_class
    from evenhand.models.reasoning import ReasoningModel

    if isinstance(spec, Model):
        model = spec
        while isinstance(model, WrappedModel) and not isinstance(model, ReasoningModel):
            model = model.inner
        return spec if isinstance(model, ReasoningModel) else ReasoningModel(spec, options or ModelOptions())
    bare, options = reached(spec, options)
    name = split_spec(bare)[1]
    factory: Any = provider_class(options.provider or "")
    if "reasoning_effort" in options.extra and not takes_effort(factory):
        raise UsageError(
            f"{bare} takes no reasoning effort; give it to the model that reasons, as in "
            "'openai/NAME?reasoning_effort=low'."
        )
    if is_pool(options):
        from evenhand.models.pool import load_pool

        model = load_pool(factory, name, options)
    else:
        model = factory(name, options)
    if options.provider != split_spec(bare)[0]:
        model.spec = bare
    return ReasoningModel(model, options)


def is_pool(options: ModelOptions) -> bool:
    return "," in (options.base_url or "")


def reached(spec: str, options: ModelOptions | None = None) -> tuple[str, ModelOptions]:
    """Return a model's PROVIDER/NAME and its options, with those of its spec and of config files."""
    from evenhand.models.endpoints import resolved

    options = options or ModelOptions()
    if options.provider is not None:
        return spec, options
    default = ModelOptions()
    given = {each.name: getattr(options, each.name) for each in fields(options)}
    set_ones = {name: value for name, value in given.items() if value != getattr(default, name)}
    bare, found = resolved(spec, defaults=set_ones)
    return bare, replace(options, **found)


def takes_effort(provider: Any) -> bool:
    """Whether a provider passes on the option `reasoning_effort`."""
    return "reasoning_effort" in (getattr(provider, "takes", None) or ())


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
    """Yield all that a request makes the model read, including texts to score and messages to steer away from."""
    yield from messages
    for text in params.given:
        yield Message("user", text)
    for each in params.steering.against if params.steering is not None else ():
        yield from each


async def close_all(models: Sequence[Model]) -> None:
    """Close all models, even if closing one of them fails."""
    await asyncio.gather(*(model.aclose() for model in models), return_exceptions=True)
