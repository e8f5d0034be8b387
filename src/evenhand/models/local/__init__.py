"""Models that run in this process: llama.cpp through `xllamacpp`, with parallel slots and continuous batching.

On a CPU with weights in Q4_0, Q4_1 or Q8_0 (such as the built-in model), answers are reproducible bit for bit: neither
other slots nor a cached prefix change a logit. K-quants use different kernels for one token and for many, which moved
logprobs by up to 0.05 in our tests. On a GPU nothing is guaranteed.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson

from evenhand.core.errors import BadResponseError, MissingExtraError, ModelError, UsageError
from evenhand.core.limiter import Gate
from evenhand.core.types import Completion, Generation, Message, Params, TokenLogprob, Usage
from evenhand.models import weights
from evenhand.models.base import PROVIDERS, START, Feature, Model, ModelOptions
from evenhand.models.openai.wire import parse_generation

_SEEDS = 2**32 - 1
"""Number of seeds: llama.cpp takes 32 bits, and the last value means 'random'."""


_GUARD = re.compile(r"guard|shieldgemma", re.IGNORECASE)


def request_body(messages: Sequence[Message], params: Params, start: int, n: int) -> dict[str, Any]:
    """Build the request for completions `start` … `start + n - 1`."""
    body: dict[str, Any] = {
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        # Only a streamed request can be stopped, but streaming loses the logprobs of tokens that llama.cpp held back.
        "stream": not params.logprobs,
        "stream_options": {"include_usage": True},
        "n": n,
    }
    if params.temperature is not None:
        body |= {"temperature": params.temperature, "top_p": 1.0, "samplers": ["temperature", "top_p"]}
    if params.top_p is not None:
        body["top_p"] = params.top_p
    if params.max_tokens is not None:
        body["max_tokens"] = params.max_tokens
    if params.seed is not None:
        body["seed"] = (params.seed + start) % _SEEDS
    if params.stop:
        body["stop"] = list(params.stop)
    if params.logprobs:
        body |= {"logprobs": True, "top_logprobs": params.logprobs}
    if params.template:
        body["chat_template_kwargs"] = dict(params.template)
    return body


def join_chunks(chunks: Sequence[Any]) -> dict[str, Any]:
    """Join a streamed reply into a complete one; each completion reports its own token count."""
    choices: dict[int, dict[str, Any]] = {}
    prompt = completion = 0
    for chunk in chunks:
        for delta in chunk["choices"]:
            choice = choices.setdefault(delta["index"], {"message": {"content": ""}})
            choice["message"]["content"] += delta["delta"].get("content") or ""
            choice["finish_reason"] = delta["finish_reason"]
        if usage := chunk.get("usage"):
            prompt, completion = usage["prompt_tokens"], completion + usage["completion_tokens"]
    return {
        "choices": [choices[index] for index in sorted(choices)],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
    }


def restore_tokens(reply: Any) -> Any:
    """Restore each token's own text: llama.cpp moves text between tokens while it looks for stop strings."""
    for choice in reply["choices"]:
        for token in choice["logprobs"]["content"]:
            names = {each["id"]: each["token"] for each in token["top_logprobs"]}
            token["token"] = names.get(token["id"], token["token"])
    if len(reply["choices"]) > 1:  # the reply counts the first completion only
        counted = sum(len(choice["logprobs"]["content"]) for choice in reply["choices"])
        reply["usage"]["completion_tokens"] = counted
    return reply


_WORDS = re.compile(r"\s*\S+|\s+$")
_BIAS = 1_000.0

Ask = Callable[[Mapping[str, Any]], Any]


def score_text(ask: Ask, text: str) -> tuple[TokenLogprob, ...] | None:
    """Return the tokens of a text; None if the model would not read it as the tokens in which it can be generated.

    `ask` sends one request to llama.cpp. If two of the text's tokens fit at one place, all at once may go wrong; then
    it is generated word by word.
    """
    wanted = _count(ask, START + text) - _count(ask, START)
    for pieces in ([text], _WORDS.findall(text)):
        found = list(_pieces(ask, pieces))
        if len(found) == wanted and b"".join(token for token, _ in found) == text.encode():
            # A token may hold a part of a character.
            return tuple(TokenLogprob(token.decode(errors="replace"), value) for token, value in found)
    return None


def _pieces(ask: Ask, pieces: list[str]) -> Iterator[tuple[bytes, float]]:
    before = START
    for piece in pieces:
        yield from _forced(ask, before, piece)
        before += piece


def _forced(ask: Ask, before: str, text: str) -> Iterator[tuple[bytes, float]]:
    """Yield the tokens of `text` after `before`, as bytes, with their log-probabilities."""
    reply = ask(
        {
            "prompt": before,
            "max_tokens": len(text.encode()) + 1,  # a token is at least one byte; the last one ends the text
            "temperature": 0,
            "logprobs": 1,
            "grammar": f"root ::= {json.dumps(text, ensure_ascii=False)}",
            "logit_bias": [[text, _BIAS]],
        }
    )
    left = text.encode()
    for token in reply["choices"][0]["logprobs"]["content"]:
        piece = bytes(token["bytes"])
        if not left or not piece or not left.startswith(piece):
            return
        left = left[len(piece) :]
        yield piece, token["logprob"]


def _count(ask: Ask, prompt: str) -> int:
    return ask({"prompt": prompt, "max_tokens": 1, "temperature": 0})["usage"]["prompt_tokens"]


T = TypeVar("T")

MAX_SLOTS = 16
DEFAULT_SLOTS = 8
DEFAULT_CONTEXT = 4096
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One spelling of each JSON value: with free white space, small models emit endless blanks."""


@PROVIDERS.register("local")
class LocalModel(Model):
    """The specs `local/builtin`, `local/NAME` (a pulled model) and `local/PATH.gguf`.

    Options: `context` (tokens per slot), `slots` (requests computed at once), `threads`, `lora` (a GGUF file with a
    LoRA adapter). Without a temperature, llama.cpp's sampling defaults apply; with one, the full distribution is
    sampled (cut by top_p if given).
    """

    features: frozenset[Feature] = frozenset({"logprobs", "schema", "seed", "likelihood"})
    free = True
    replicable = True
    fixed = True
    takes = frozenset({"context", "slots", "threads", "lora"})

    def __init__(self, name: str, options: ModelOptions) -> None:
        if self.unavailable():
            raise MissingExtraError("local/ models", "local")
        self.spec = f"local/{name}"
        self.path = weights.find(name)
        self.lora = _lora(options) or weights.lora_of(name)
        self.context = _int_option(options, "context", DEFAULT_CONTEXT, 16, 1 << 24)
        self._parallel = _int_option(options, "slots", min(DEFAULT_SLOTS, max(1, options.concurrency)), 1, MAX_SLOTS)
        self.slots = self._parallel
        self.threads = _int_option(options, "threads", usable_cores(), 1, 512)
        self._gate = Gate(self._parallel)
        self._pool = ThreadPoolExecutor(self._parallel, "local-model")
        self._loading = threading.Lock()
        self._server: Any = None
        self._grammars: dict[bytes, str] = {}
        self._closed = False

    @classmethod
    def unavailable(cls) -> str | None:
        if importlib.util.find_spec("xllamacpp") is None:
            return str(MissingExtraError("local/ models", "local"))
        return None

    def fingerprint(self) -> Mapping[str, Any]:
        return {
            "spec": self.spec,
            "file": self.path.name,
            "sha256": weights.file_sha256(self.path),
            "engine": f"xllamacpp {importlib.metadata.version('xllamacpp')}",
            "context": self.context,
            **({"lora_sha256": weights.file_sha256(self.lora)} if self.lora else {}),
        }

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        if self._closed:
            raise UsageError(f"{self.spec} was closed; load it again.")
        started = time.perf_counter()
        if params.given:
            scored = await asyncio.gather(*(self._scored(text) for text in params.given))
            tokens = sum(len(each.logprobs or ()) for each in scored)
            return Generation(tuple(scored), self.spec, Usage(1, tokens), time.perf_counter() - started)
        # llama.cpp computes the prompt once for up to `slots` completions; completion i gets seed + i.
        starts = range(0, max(1, params.n), self._parallel)
        batches = [(start, min(self._parallel, max(1, params.n) - start)) for start in starts]
        parts = await asyncio.gather(*(self._batch(messages, params, *batch) for batch in batches))
        completions: tuple[Completion, ...] = ()
        usage = Usage(calls=1, prompt_tokens=parts[0].usage.prompt_tokens)
        for part in parts:
            completions += part.completions
            usage += Usage(completion_tokens=part.usage.completion_tokens)
        return Generation(completions, self.spec, usage, time.perf_counter() - started)

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        # Freed in a thread, since the engine's destructor waits for llama.cpp's own threads.
        await asyncio.to_thread(setattr, self, "_server", None)

    async def _batch(self, messages: Sequence[Message], params: Params, start: int, n: int) -> Generation:
        return await self._in_slots(n, partial(self._complete, messages, params, start, n))

    async def _scored(self, text: str) -> Completion:
        return await self._in_slots(1, partial(self._score, text))

    async def _in_slots(self, n: int, compute: Callable[[threading.Event], T]) -> T:
        """Compute in a worker thread that holds `n` slots."""
        await self._gate.acquire(n)
        stop = threading.Event()
        try:
            work = asyncio.get_running_loop().run_in_executor(self._pool, compute, stop)
            try:
                return await asyncio.shield(work)
            except asyncio.CancelledError:
                stop.set()
                await asyncio.wait([work])  # llama.cpp holds the slots until the request has ended
                raise
        finally:
            self._gate.release(n)

    def _complete(
        self, messages: Sequence[Message], params: Params, start: int, n: int, stop: threading.Event
    ) -> Generation:
        """Send one request to llama.cpp; runs in a worker thread."""
        server = self._engine()
        body = request_body(messages, params, start, n)
        if params.schema is not None:
            body["grammar"] = self._grammar(params.schema)
        chunks = _call(server.handle_chat_completions, body, stop)
        for chunk in chunks:
            if "error" in chunk:
                raise self._failure(chunk["error"])
        try:
            reply = join_chunks(chunks) if body["stream"] else restore_tokens(chunks[0])
            return parse_generation(reply, self.spec)
        except (ValueError, KeyError, IndexError) as error:
            raise BadResponseError(
                f"{self.spec} returned no completion ({error}); this is a bug, please report it."
            ) from None

    def _score(self, text: str, stop: threading.Event) -> Completion:
        """Score a given text; runs in a worker thread."""

        def ask(body: Mapping[str, Any]) -> Any:
            reply = _call(self._engine().handle_completions, body, stop)[0]
            if "error" in reply:
                raise self._failure(reply["error"])
            return reply

        found = score_text(ask, text)
        if found is None:
            raise ModelError(f"{self.spec} splits a text into other tokens than it reads; it cannot score it.")
        return Completion(text, logprobs=found)

    def _failure(self, error: Mapping[str, Any]) -> ModelError:
        if error.get("type") == "exceed_context_size_error":
            return ModelError(
                f"The prompt has {error.get('n_prompt_tokens')} tokens, but {self.spec} was loaded with room for "
                f"{error.get('n_ctx', self.context)}; raise the model option `context` or shorten the prompt."
            )
        return ModelError(f"{self.spec} failed: {error.get('message', 'unknown error')}")

    def _engine(self) -> Any:
        """Return the llama.cpp server; the first call loads the model."""
        with self._loading:
            if self._server is None:
                xlc = _import_engine()
                try:
                    self._server = xlc.Server(self._settings(xlc))
                except RuntimeError:
                    adapted = f" with the adapter {self.lora} (is it of this model?)" if self.lora else ""
                    raise UsageError(
                        f"llama.cpp cannot load {self.path}{adapted}: the file is damaged, its model type is not "
                        f"supported, or memory does not suffice for {self._parallel} slots of {self.context} tokens "
                        "each (lower the model options `slots` and `context`)."
                    ) from None
            return self._server

    def _settings(self, xlc: Any) -> Any:
        settings = xlc.CommonParams()
        settings.model.path = str(self.path)
        if self.lora is not None:
            settings.lora_adapters = [xlc.CommonAdapterLoraInfo(str(self.lora), 1.0)]
        settings.n_parallel, settings.n_ctx = self._parallel, self.context * self._parallel
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = self.threads
        settings.ctx_shift = False
        settings.cache_ram_mib = 0  # slots already reuse prefixes; a second cache would take up to 8 GB
        settings.verbosity = -1
        # A last turn of the assistant is the beginning of the reply, but a guard model is asked about it.
        settings.prefill_assistant = _GUARD.search(self.path.name) is None
        # xllamacpp always opens a port on 127.0.0.1; the secret key keeps others out.
        settings.api_keys = [secrets.token_hex(16)]
        settings.n_threads_http, settings.ui, settings.endpoint_slots = 1, False, False
        if all(
            device["type"] == xlc.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU for device in xlc.get_device_info()
        ):
            # For float16, llama.cpp selects the attention kernel by batch size. The kernels differ in the last bits,
            # which grows to 0.1 in a logprob of small quantized models. For bfloat16 values it has a single kernel.
            settings.flash_attn_type = xlc.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
            settings.cache_type_v = xlc.ggml_type.GGML_TYPE_BF16
        return settings

    def _grammar(self, schema: Mapping[str, Any]) -> str:
        """Return the schema as a grammar, after checking that llama.cpp enforces it."""
        key = orjson.dumps(schema, option=orjson.OPT_SORT_KEYS)
        if key not in self._grammars:
            xlc, server = _import_engine(), self._engine()
            grammar = xlc.json_schema_to_grammar(orjson.dumps({**schema, "x-guidance": _COMPACT}))
            # llama.cpp silently ignores a grammar that it cannot parse, so we test it with a reply that is not JSON.
            probe = {"prompt": "x", "max_tokens": 1, "temperature": 0, "logit_bias": [["x", 100]], "grammar": grammar}
            reply = _call(server.handle_completions, probe)[0]
            if "error" in reply or reply["choices"][0]["text"].startswith("x"):
                fault = _schema_fault(server, schema)
                raise UsageError(
                    f"llama.cpp cannot enforce this JSON schema{fault}; use only types, properties, items, enum, "
                    "required, limits and $ref, or omit the schema."
                )
            self._grammars[key] = grammar
        return self._grammars[key]


def usable_cores() -> int:
    """Return how many cores this process may use, including a container's limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        return max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no cgroup, or "max": no limit
        return cores


def _import_engine() -> Any:
    """Import xllamacpp with OpenMP threads that sleep at barriers.

    By default they spin, which makes generation up to 20 times slower when other processes use the cores, and only
    10 % faster on idle ones.
    """
    before = os.environ.get("OMP_WAIT_POLICY")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once, when the library is loaded
    try:
        return importlib.import_module("xllamacpp")
    finally:
        if before is None:
            del os.environ["OMP_WAIT_POLICY"]


def _call(handler: Any, body: Mapping[str, Any], stop: threading.Event | None = None) -> list[Any]:
    """Return the parsed chunks of one reply; setting `stop` ends the request early."""
    chunks: list[bytes] = []

    def should_stop(chunk: bytes) -> bool:
        chunks.append(chunk)
        return stop is not None and stop.is_set()

    try:
        handler(orjson.dumps(body), should_stop)
    except (ValueError, RuntimeError) as error:  # how xllamacpp reports invalid requests
        return [{"error": {"message": str(error)}}]
    return [orjson.loads(chunk) for chunk in chunks]


def _schema_fault(server: Any, schema: Mapping[str, Any]) -> str:
    """Return the error message of llama.cpp's other schema parser, which does report errors."""
    probe = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "json_schema": schema}
    error = _call(server.handle_chat_completions, probe)[0].get("error", {})
    _, marker, fault = error.get("message", "").partition("JSON schema error ")
    return f" ({fault})" if marker else ""


def _lora(options: ModelOptions) -> Path | None:
    given = options.extra.get("lora")
    return None if given is None else weights.checked_gguf(Path(str(given)).expanduser())


def _int_option(options: ModelOptions, name: str, default: int, least: int, most: int) -> int:
    value = options.extra.get(name, default)
    if not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"The model option {name} must be a whole number from {least} to {most}, not {value!r}.")
    return value
