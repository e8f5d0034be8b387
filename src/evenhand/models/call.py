"""Any Python function as a model: prompt in, text out. So a team of agents in any framework can be audited."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from evenhand import aio
from evenhand.errors import ModelError, UsageError
from evenhand.models.base import PROVIDERS, Model, ModelOptions
from evenhand.models.fake import estimate_tokens
from evenhand.registry import is_file, load_file
from evenhand.types import Completion, Generation, Message, Params, Usage

_LONGEST_REASON = 300


@PROVIDERS.register("call")
class CalledModel(Model):
    """The spec `call/MODULE:FUNCTION`: an async or plain function from a prompt to a text, e.g. `call/my_team:judge`.

    The module may also be in the current directory, or a file: `call/./my_team.py:judge`. Temperature and length are up
    to the function; token counts are estimated.
    """

    def __init__(self, name: str, options: ModelOptions) -> None:
        module, colon, function = name.partition(":")
        if not all((module, colon, function)):
            raise UsageError(f"call/{name} names no function; write call/MODULE:FUNCTION, e.g. call/my_team:judge.")
        self.spec = f"call/{name}"
        self._module = _import(module)
        self._function = _function(self._module, function, self.spec)
        self._timeout = options.timeout
        self._semaphore = asyncio.Semaphore(options.concurrency)

    def fingerprint(self) -> Mapping[str, Any]:
        """Return the spec with a hash of the module's source, so that changed code counts as another model."""
        file = Path(getattr(self._module, "__file__", None) or "")
        source = file.read_bytes() if file.is_file() else b""
        return {"spec": self.spec, "source": hashlib.sha256(source).hexdigest()[:16]}

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        started = time.perf_counter()
        prompt = as_prompt(messages)
        texts = await aio.all_of(self._call(prompt) for _ in range(params.n))
        used = Usage(
            calls=len(texts),
            prompt_tokens=len(texts) * estimate_tokens(prompt),
            completion_tokens=sum(estimate_tokens(text) for text in texts),
        )
        return Generation(tuple(Completion(text) for text in texts), self.spec, used, time.perf_counter() - started)

    async def _call(self, prompt: str) -> str:
        async with self._semaphore:
            limit = asyncio.timeout(self._timeout)
            try:
                async with limit:
                    text: Any = await _result(self._function, prompt)
            except Exception as error:  # the user's function may raise anything
                if isinstance(error, TimeoutError) and limit.expired():
                    raise ModelError(
                        f"{self.spec} gave no answer within {self._timeout:g} seconds; --timeout allows more."
                    ) from None
                raise ModelError(f"{self.spec} failed: {_describe(error)}") from error
        if not isinstance(text, str):
            raise ModelError(f"{self.spec} returned {type(text).__name__}, not a text; it must return a str.")
        return text


def as_prompt(messages: Sequence[Message]) -> str:
    """Join a conversation into one text; the function's own earlier replies are marked."""
    marked = (f"Your reply was:\n{each.content}" if each.role == "assistant" else each.content for each in messages)
    return "\n\n".join(marked)


async def _result(function: Callable[[str], Any], prompt: str) -> Any:
    """Call the function; a plain one runs in a thread, so that it does not block the event loop."""
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    result = function(prompt) if is_async else await asyncio.to_thread(function, prompt)
    return await result if inspect.isawaitable(result) else result


def _import(name: str) -> Any:
    if is_file(name):
        return load_file(name)
    here = str(Path.cwd())
    if here not in sys.path:
        # As `python -m` does. It is not removed again: the module may import its neighbours later.
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"There is no module {name}; run Evenhand in the folder that contains it, or install it."
            ) from None
        raise UsageError(f"The module {name} cannot be imported ({_describe(error)}); fix that first.") from error


def _function(module: Any, name: str, spec: str) -> Callable[[str], Any]:
    try:
        function = attrgetter(name)(module)
    except AttributeError:
        raise UsageError(f"{spec}: the module {module.__name__} has no {name}; check the name.") from None
    if not callable(function):
        raise UsageError(f"{spec}: {name} cannot be called; name a function that takes a prompt and returns a text.")
    return function


def _describe(error: Exception) -> str:
    """Return the class of an error and the first line of its message."""
    first = (str(error).strip().splitlines() or [""])[0][:_LONGEST_REASON]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
