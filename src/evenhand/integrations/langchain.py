"""LangChain (extra `langchain`): a chat model whose answers go through a method and the checks of a guard.

`GuardedChat(model=ChatOpenAI(…))` is a chat model itself, so it stands in chains wherever the model stood. The settings
of the wrapped model apply to every call: LangChain has no common names for temperature and token limits, so those of
methods are not sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from evenhand.core.errors import ModelError, UsageError, needs_extra

with needs_extra("the LangChain chat model", "langchain"):
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field, PrivateAttr

from evenhand.api import guard
from evenhand.core.types import Completion, Finish, Generation, Message, Params, Role, Usage
from evenhand.guards.guard import Guard
from evenhand.guards.types import Guarded
from evenhand.methods import GUARD_METHOD
from evenhand.models.base import Model

_ROLES: Mapping[str, Role] = {"system": "system", "human": "user", "ai": "assistant"}
_FINISH: Mapping[str, Finish] = {"length": "length", "max_tokens": "length", "content_filter": "filter"}


class LangChainModel(Model):
    """A chat model of LangChain as a model of Evenhand, for `evenhand.audit` and methods."""

    def __init__(self, model: BaseChatModel) -> None:
        self._model = model
        settings: Mapping[str, Any] = model._get_ls_params()  # pyright: ignore[reportPrivateUsage]
        self.spec = f"langchain/{settings.get('ls_model_name') or model.get_name()}"

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        began = time.perf_counter()
        kinds = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
        asked = [kinds[each.role](content=each.content) for each in messages]
        try:
            replies = await asyncio.gather(
                *(self._model.ainvoke(asked, stop=list(params.stop) or None) for _ in range(params.n))
            )
        except Exception as error:  # each provider has its own classes
            raise ModelError(f"{self.spec} failed: {error}") from error
        usage = sum((_usage(each) for each in replies), Usage())
        return Generation(tuple(map(_completion, replies)), self.spec, usage, time.perf_counter() - began)


class GuardedChat(BaseChatModel):
    """A chat model behind a guard; what was changed and why is in `response_metadata["evenhand"]` of its answers."""

    model: BaseChatModel
    method: str = GUARD_METHOD
    """The method with its options, e.g. `stardtox:iterations=3`."""
    policy: str = "revise"
    """What happens to an answer that fails: `revise`, `flag` or `block`."""
    judge: BaseChatModel | str | None = None
    """A chat model, or the spec of one of Evenhand's."""
    options: dict[str, Any] = Field(default_factory=dict)
    """More arguments of `evenhand.guard`: `evaluators`, `thresholds`, `input`, `blocked_text`, `latency`, …"""
    _guard: Guard = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        judge = LangChainModel(self.judge) if isinstance(self.judge, BaseChatModel) else self.judge
        made = LangChainModel(self.model)
        self._guard = guard(made, method=self.method, policy=self.policy, judge=judge, **self.options)

    @property
    def _llm_type(self) -> str:
        return "evenhand"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return {"model": LangChainModel(self.model).spec, "method": self.method, "policy": self.policy}

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        del run_manager
        return _result(self._guard.sync(_messages(messages, kwargs), **_stop(stop)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        del run_manager
        return _result(await self._guard(_messages(messages, kwargs), **_stop(stop)))


def _stop(stop: list[str] | None) -> dict[str, Any]:
    return {"stop": stop} if stop else {}


def _messages(messages: Sequence[BaseMessage], more: Mapping[str, Any]) -> list[Message]:
    """The conversation as ours; what a guard of text cannot check is refused, not dropped."""
    if more.get("tools"):
        raise UsageError("The guarded chat model takes and gives text alone; bind tools to the model inside a chain.")
    found: list[Message] = []
    for each in messages:
        content: Any = each.content
        is_text = isinstance(content, str) or all(isinstance(p, str) or p.get("type") == "text" for p in content)
        if each.type not in _ROLES or not is_text or getattr(each, "tool_calls", None):
            raise UsageError("The guarded chat model takes system, user and assistant messages of text alone.")
        found.append(Message(_ROLES[each.type], str(each.text)))
    return found


def _completion(reply: Any) -> Completion:
    if getattr(reply, "tool_calls", None):
        raise ModelError("The model answered with a tool call, which the guarded chat model does not pass on.")
    about: Mapping[str, Any] = reply.response_metadata
    finish = str(about.get("finish_reason") or about.get("stop_reason") or "stop")
    return Completion(str(reply.text), _FINISH.get(finish, "stop"), reply.additional_kwargs.get("refusal"))


def _usage(reply: Any) -> Usage:
    used: Mapping[str, Any] = reply.usage_metadata or {}
    sent, written = used.get("input_tokens", 0), used.get("output_tokens", 0)
    return Usage(calls=1, prompt_tokens=sent, completion_tokens=written, cost=None)


def _result(guarded: Guarded) -> ChatResult:
    usage = guarded.usage
    record = {
        "action": guarded.action,
        "why": list(guarded.why),
        "iterations": guarded.iterations,
        "checks": [asdict(each) for each in guarded.after],
    }
    message = AIMessage(
        content=guarded.text,
        additional_kwargs={"refusal": refusal} if (refusal := guarded.message.get("refusal")) else {},
        response_metadata={"evenhand": record, "finish_reason": guarded.finish},
        usage_metadata={
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.completion_tokens,
            "total_tokens": usage.tokens,
        },
    )
    return ChatResult(generations=[ChatGeneration(message=message)])
