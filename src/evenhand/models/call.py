"""Any Python function as a model, prompt in, text out: so a team of agents of whatever framework can be audited."""

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
from evenhand.types import Completion, Generation, Message, Params, Usage

_LONGEST_REASON = 300


@PROVIDERS.register("call")
class CalledModel(Model):
    """The spec `call/MODULE:FUNCTION`: an async or plain function from a prompt to a text, e.g. `call/my_team:judge`.

    The module is looked for in the current directory too. Temperature and length are the function's own affair, and
    tokens are estimated.
    """

    def __init__(self, name: str, options: ModelOptions) -> None:
        module, colon, function = name.partition(":")
        if not all((module, colon, function)):
            raise UsageError(f"call/{name} names no function; write call/MODULE:FUNCTION, e.g. call/my_team:judge.")
        self.spec = f"call/{name}"
        self._module = _imported(module)
        self._function = _function(self._module, function, self.spec)
        self._timeout = options.timeout
        self._room = asyncio.Semaphore(options.concurrency)

    def fingerprint(self) -> Mapping[str, Any]:
        """With the module's source: another team is another model."""
        file = Path(getattr(self._module, "__file__", None) or "")
        source = file.read_bytes() if file.is_file() else b""
        return {"spec": self.spec, "source": hashlib.sha256(source).hexdigest()[:16]}

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        started = time.perf_counter()
        prompt = as_prompt(messages)
        texts = await aio.all_of(self._called(prompt) for _ in range(params.n))
        used = Usage(
            calls=len(texts),
            prompt_tokens=len(texts) * estimate_tokens(prompt),
            completion_tokens=sum(estimate_tokens(text) for text in texts),
        )
        return Generation(tuple(Completion(text) for text in texts), self.spec, used, time.perf_counter() - started)

    async def _called(self, prompt: str) -> str:
        async with self._room:
            limit = asyncio.timeout(self._timeout)
            try:
                async with limit:
                    text: Any = await _result(self._function, prompt)
            except Exception as error:  # whatever a stranger's function raises
                if isinstance(error, TimeoutError) and limit.expired():
                    words = f"gave no answer within {self._timeout:g} seconds; --timeout allows more"
                    raise ModelError(f"{self.spec} {words}.") from None
                raise ModelError(f"{self.spec} failed: {_words(error)}") from error
        if not isinstance(text, str):
            raise ModelError(f"{self.spec} returned {type(text).__name__}, not a text; let it return a str.")
        return text


def as_prompt(messages: Sequence[Message]) -> str:
    """A conversation as one text: what the function said before is marked as its own."""
    marked = (f"Your reply was:\n{each.content}" if each.role == "assistant" else each.content for each in messages)
    return "\n\n".join(marked)


async def _result(function: Callable[[str], Any], prompt: str) -> Any:
    """What the function returns; a plain one works in a thread, so that it holds up nobody."""
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    found = function(prompt) if is_async else await asyncio.to_thread(function, prompt)
    return await found if inspect.isawaitable(found) else found


def _imported(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        # As `python -m` does; it stays, since the module may import its neighbours later.
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"There is no module {name}; call Evenhand in the folder that holds it, or install it."
            ) from None
        raise UsageError(f"The module {name} cannot be imported ({_words(error)}); mend that first.") from error


def _function(module: Any, name: str, spec: str) -> Callable[[str], Any]:
    try:
        found = attrgetter(name)(module)
    except AttributeError:
        raise UsageError(f"{spec}: the module {module.__name__} has no {name}; check the name.") from None
    if not callable(found):
        raise UsageError(f"{spec}: {name} cannot be called; name a function that takes a prompt and returns a text.")
    return found


def _words(error: Exception) -> str:
    """The first line of what an error says, with its class."""
    first = (str(error).strip().splitlines() or [""])[0][:_LONGEST_REASON]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
