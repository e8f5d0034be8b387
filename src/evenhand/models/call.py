"""Any Python function as a model: text in, text out. So a team of agents in any framework can be audited."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol, cast

from evenhand.core import aio
from evenhand.core.errors import ModelError, UsageError
from evenhand.core.registry import check_code, is_file, load_file
from evenhand.core.types import Completion, Generation, Message, Params, Usage
from evenhand.models.base import PROVIDERS, ROLE, TOOLBOX, Model, ModelOptions, estimate_tokens

_LONGEST_REASON = 300


class ModelFunction(Protocol):
    """A function that answers as a model does, plain or async; a plain one is called in threads, several at once.

    It takes what it needs: `f(prompt)` gets the conversation as one text, `f(messages)` as messages, and
    `f(messages, params)` also the temperature, `max_tokens`, seed and JSON schema of the request. An argument named
    `role` gets what the model is asked as: `base`, `judge`, …; scorers ask without a role (""). One named `tools` gets
    the tools of a simulated world, `tools.call("read_ticket")`, for an agent that plays a case to its end itself.
    """

    def __call__(
        self, messages: Sequence[Message], params: Params, *, role: str
    ) -> str | Completion | Awaitable[str | Completion]: ...


class FunctionAsModel(Model):
    """A function as a model; token counts are estimated."""

    longer = "--timeout allows more"
    """What to do about a function that takes too long."""

    def __init__(self, function: Callable[..., Any], spec: str, source: bytes, options: ModelOptions) -> None:
        self.spec = spec
        self._source = hashlib.sha256(source).hexdigest()[:16]
        self._form = _Form(function)
        if self._form.takes_tools:
            self.features = frozenset({"plays"})
        elif self._form.takes_params:
            self.features = frozenset({"seed", "schema"})
        self._function = function
        self._timeout = options.timeout
        self._concurrency = options.concurrency
        self._semaphore = asyncio.Semaphore(options.concurrency)
        self._threads: ThreadPoolExecutor | None = None

    def fingerprint(self) -> Mapping[str, Any]:
        """Return the spec with a hash of the source, so that changed code counts as another model."""
        return {"spec": self.spec, "source": self._source}

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        started = time.perf_counter()
        completions = await aio.all_of(self._call(messages, params) for _ in range(params.n))
        if params.schema is not None and not any("{" in each.text for each in completions):
            self.features -= {"schema"}  # so that nobody waits for JSON again
        used = Usage(
            calls=len(completions),
            prompt_tokens=len(completions) * sum(estimate_tokens(each.content) for each in messages),
            completion_tokens=sum(estimate_tokens(each.text) for each in completions),
        )
        return Generation(tuple(completions), self.spec, used, time.perf_counter() - started)

    async def _call(self, messages: Sequence[Message], params: Params) -> Completion:
        async with self._semaphore:
            limit = asyncio.timeout(self._timeout)
            make = TOOLBOX.get()
            if self._form.takes_tools and make is None:
                raise ModelError(f"{self.spec} calls tools, and this question has none; use the benchmark agents.")
            tools = make() if make is not None and self._form.takes_tools else None
            try:
                async with limit:
                    reply: Any = await self._result(self._form.bound(self._function, messages, params, tools))
            except Exception as error:  # the user's function may raise anything
                if isinstance(error, TimeoutError) and limit.expired():
                    raise ModelError(
                        f"{self.spec} gave no answer within {self._timeout:g} seconds; {self.longer}."
                    ) from None
                raise ModelError(f"{self.spec} failed: {_describe(error)}") from error
        if isinstance(reply, Completion):
            return reply
        if not isinstance(reply, str):
            raise ModelError(f"{self.spec} returned {type(reply).__name__}, not a text; it must return a str.")
        return Completion(reply, calls=() if tools is None else tuple(tools.calls))

    async def _result(self, call: Callable[[], Any]) -> Any:
        """Call the function; a plain one runs in a thread, so that it does not block the event loop."""
        if _is_async(self._function):
            result = call()
        else:
            # Threads of our own: those of asyncio are few, and most functions wait for a network.
            self._threads = self._threads or ThreadPoolExecutor(self._concurrency)
            loop = asyncio.get_running_loop()
            result = await loop.run_in_executor(self._threads, copy_context().run, partial(_called, call))
        return await result if inspect.isawaitable(result) else result

    async def aclose(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


@PROVIDERS.register("call")
class CalledModel(FunctionAsModel):
    """The spec `call/MODULE:FUNCTION`: an async or plain function from a prompt to a text, e.g. `call/my_team:judge`.

    The module may also be in the current directory, or a file: `call/./my_team.py:judge`. Temperature and length are up
    to the function (see `ModelFunction`); token counts are estimated.
    """

    takes = frozenset[str]()

    def __init__(self, name: str, options: ModelOptions) -> None:
        module, colon, function = name.partition(":")
        if not all((module, colon, function)):
            raise UsageError(f"call/{name} names no function; write call/MODULE:FUNCTION, e.g. call/my_team:judge.")
        found = _import(module)
        file = Path(getattr(found, "__file__", None) or "")
        source = file.read_bytes() if file.is_file() else b""
        super().__init__(_function(found, function, f"call/{name}"), f"call/{name}", source, options)


@PROVIDERS.register("python")
class PassedModel(Model):
    """A function that was passed in Python: `evenhand.audit(my_function)`. A spec cannot load it."""

    @classmethod
    def unavailable(cls) -> str | None:
        return "only from Python"

    def __init__(self, name: str, options: ModelOptions) -> None:
        del options
        raise UsageError(
            f"python/{name} is a function that was passed in Python; go on there: "
            "evenhand.audit(FUNCTION, …, settings=Settings(resume=True))."
        )

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        raise NotImplementedError("no such model is ever made")


def passed_model(function: Callable[..., Any], options: ModelOptions, taken: Iterable[str] = ()) -> FunctionAsModel:
    """A function that was passed in Python as a model, with a spec that none of the others has."""
    spec, number = f"python/{_name(function)}", 1
    while spec in taken:
        number += 1
        spec = f"python/{_name(function)}-{number}"
    model = FunctionAsModel(function, spec, _source(function), options)
    model.longer = "pass {'spec': FUNCTION, 'timeout': SECONDS} to allow more"
    return model


def _name(function: Any) -> str:
    target = _definition(function)
    name = target.__qualname__.replace("<locals>.", "").replace("<lambda>", "lambda")
    return f"{target.__module__}.{name}"


def _source(function: Any) -> bytes:
    """The source of the function or class; of a lambda its code, since its line has other things too."""
    target = _definition(function)
    try:
        if target.__name__ != "<lambda>":
            return inspect.getsource(target).encode()
    except (OSError, TypeError):  # typed into an interpreter, or written in C
        pass
    code: Any = getattr(target, "__code__", None)
    if code is None:
        return _name(function).encode()
    plain = [each for each in code.co_consts if not inspect.iscode(each)]
    return repr((code.co_code, code.co_names, plain)).encode()


def _definition(function: Any) -> Any:
    """The function or class that was written down."""
    while isinstance(function, partial):
        function = cast(Any, function).func
    function = inspect.unwrap(function)
    return function if hasattr(function, "__qualname__") else cast(Any, type(function))


class _Form:
    """Which of the forms of a `ModelFunction` a function has."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            found = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # written in C
            found = []
        by_name = {each.name for each in found if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)}
        in_order = [each for each in found if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        needed = [
            each for each in in_order if each.default is each.empty and each.name not in ("role", "params", "tools")
        ]
        self.takes_role = "role" in by_name
        self.takes_tools = "tools" in by_name
        self._params_by_name = "params" in by_name
        self.takes_params = self._params_by_name or len(needed) == 2
        first = in_order[0].name if in_order else ""
        self.takes_text = first == "prompt" or not (self.takes_params or first == "messages")

    def bound(
        self, function: Callable[..., Any], messages: Sequence[Message], params: Params, tools: Any = None
    ) -> Callable[[], Any]:
        arguments: list[Any] = [as_prompt(messages) if self.takes_text else list(messages)]
        by_name: dict[str, Any] = {"role": ROLE.get()} if self.takes_role else {}
        if self.takes_tools:
            by_name["tools"] = tools
        if self._params_by_name:
            by_name["params"] = params
        elif self.takes_params:
            arguments.append(params)
        return partial(function, *arguments, **by_name)


def _called(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except StopIteration as error:  # a future does not take it, and would never be done
        raise RuntimeError("function raised StopIteration") from error


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def as_prompt(messages: Sequence[Message]) -> str:
    """Join a conversation into one text; the function's own earlier replies are marked."""
    marked = (f"Your reply was:\n{each.content}" if each.role == "assistant" else each.content for each in messages)
    return "\n\n".join(marked)


def _import(name: str) -> Any:
    if is_file(name):
        return load_file(name)
    check_code()
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
