"""Fake models with fixed, scripted or computed replies, for tests of methods and for dry runs.

They are public API: `FunctionModel(lambda messages, params: "B")` replaces any model in your own tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from evenhand.core.errors import UsageError
from evenhand.core.types import Completion, Generation, Message, Params, Usage
from evenhand.models.base import PROVIDERS, Feature, Model, ModelOptions, all_messages, estimate_tokens

Reply = str | Completion | Exception


class FunctionModel(Model):
    """Replies with the result of `function(messages, params)`; a returned exception is raised.

    For texts to score, it is called once for each, with this one in `params.given`.
    """

    free = True

    def __init__(
        self,
        function: Callable[[Sequence[Message], Params], Reply],
        *,
        spec: str = "fake/function",
        features: Iterable[Feature] = ("seed",),
    ) -> None:
        self.spec = spec
        self.features = frozenset(features)
        self.requests: list[tuple[tuple[Message, ...], Params]] = []
        """Every request seen so far, for assertions."""
        self._function = function

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        self.requests.append((tuple(messages), params))
        completions: list[Completion] = []
        singles = [replace(params, given=(text,)) for text in params.given] or [params] * params.n
        for single in singles:
            reply = self._function(messages, single)
            if isinstance(reply, Exception):
                raise reply
            completions.append(Completion(reply) if isinstance(reply, str) else reply)
        usage = Usage(
            calls=1,
            prompt_tokens=sum(estimate_tokens(message.content) for message in all_messages(messages, params)),
            completion_tokens=0 if params.given else sum(estimate_tokens(each.text) for each in completions),
        )
        return Generation(tuple(completions), self.spec, usage)


class ScriptedModel(FunctionModel):
    """Replies with the given texts in order; a call after the last reply is an error."""

    def __init__(self, replies: Iterable[Reply], *, spec: str = "fake/script") -> None:
        remaining = iter(replies)

        def next_reply(_messages: Sequence[Message], _params: Params) -> Reply:
            try:
                return next(remaining)
            except StopIteration:
                return UsageError("The scripted model has no reply left; give it one reply per call.")

        super().__init__(next_reply, spec=spec)


@PROVIDERS.register("fake")
class FakeModel(FunctionModel):
    """The spec `fake/TEXT` always answers TEXT; `fake/echo` repeats the last message."""

    replicable = True
    fixed = True
    takes = frozenset[str]()

    def __init__(self, name: str, options: ModelOptions) -> None:
        del options

        def reply(messages: Sequence[Message], _params: Params) -> str:
            return messages[-1].content if name == "echo" else name

        super().__init__(reply, spec=f"fake/{name}")
