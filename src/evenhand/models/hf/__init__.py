"""Models run by Hugging Face transformers: slower than `local` on a CPU, but with full logits, and on GPUs.

Requests that wait at the same time are computed as one left-padded batch in a single worker thread. Each row has its
own sampling settings and random generator, so its text depends on its seed and not on its neighbours. A row that is
steered takes several lines of the batch: its own, and one for each conversation that it is steered away from.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.metadata
import importlib.util
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from evenhand.errors import EvenhandError, MissingExtraError, ModelError, UsageError
from evenhand.models import weights
from evenhand.models.base import PROVIDERS, Feature, Model, ModelOptions
from evenhand.models.hf import steps as hf_steps
from evenhand.models.hf.sampling import draw, steered
from evenhand.models.hf.tuning import tune
from evenhand.types import Completion, Finish, Generation, Message, Params, TokenLogprob, Usage

DEFAULT_BATCH, GPU_BATCH = 16, 128
"""Lines computed at once; where memory is short for that many, fewer."""
_GATHERING = 0.005
"""Seconds to wait for more requests before a batch starts."""
_READ_AT_ONCE = 1 << 16
"""Tokens of prompts, padding included."""
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(slots=True, eq=False)
class _Row:
    """One completion on its way."""

    messages: Sequence[Message]
    params: Params
    seed: int | None
    done: Future[Completion] = field(default_factory=Future[Completion])
    prompts: list[list[int]] = field(default_factory=list[list[int]])
    """Its own, tokenized, and those of the conversations to steer away from."""
    limit: int = 0
    generator: Any = None
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])

    @property
    def lines(self) -> int:
        """How many lines of a batch the row takes."""
        return 1 + (len(self.params.steering.against) if self.params.steering is not None else 0)

    def settle(self, outcome: Completion | Exception) -> None:
        with suppress(InvalidStateError):  # cancelled in the meantime
            if isinstance(outcome, Exception):
                self.done.set_exception(outcome)
            else:
                self.done.set_result(outcome)


@PROVIDERS.register("hf")
class HFModel(Model):
    """The specs `hf/FOLDER`, `hf/OWNER/NAME` (from the hub) and `hf/FILE.gguf`; no temperature means greedy.

    Options: `batch` (most lines computed at once; fewer where memory is short), `device` (`cuda`, `cpu`), `template`
    (`none` joins the contents of the messages instead of applying the chat template, for base models).
    """

    features: frozenset[Feature] = frozenset({"logprobs", "seed", "logits"})
    free = True

    def __init__(self, name: str, options: ModelOptions) -> None:
        if self.unavailable():
            raise MissingExtraError("hf models", "hf")
        self.spec = f"hf/{name}"
        self.path = _local_path(name)
        self._concurrency = max(1, options.concurrency)
        self._wanted_batch: int | None = None if "batch" not in options.extra else int(options.extra["batch"])
        self._name = name
        self._device: str | None = options.extra.get("device")
        self._raw = options.extra.get("template") == "none"
        self._pool = ThreadPoolExecutor(1, "hf-model")
        self._computing = threading.RLock()
        self._pending: deque[_Row] = deque()
        self._closed = False
        self._words: dict[int, str] = {}

    @classmethod
    def unavailable(cls) -> str | None:
        if any(importlib.util.find_spec(package) is None for package in ("torch", "transformers")):
            return str(MissingExtraError("hf models", "hf"))
        return None

    @cached_property
    def device(self) -> str:
        return self._device or ("cuda" if _torch().cuda.is_available() else "cpu")

    @cached_property
    def batch(self) -> int:
        """The most lines that are computed at once."""
        usual = GPU_BATCH if self.device.startswith("cuda") else DEFAULT_BATCH
        return self._wanted_batch or min(usual, self._concurrency)

    @cached_property
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""
        tokenizer = self._load("AutoTokenizer")
        if not tokenizer.chat_template and not self._raw:
            raise UsageError(
                f"{self.spec} has no chat template, so it is probably a base model: use its instruct version, or set "
                "the model option template=none to send the text as it is."
            )
        return tokenizer

    @cached_property
    def model(self) -> Any:
        """The transformers model, in evaluation mode on its device; loaded when first asked for."""
        dtype = _torch().bfloat16 if self.device.startswith("cuda") else _torch().float32
        model = self._load("AutoModelForCausalLM", dtype=dtype).to(self.device).eval()
        tune(model)
        return model

    @cached_property
    def _room(self) -> int:
        """How many tokens a text may have."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or 1 << 30

    def fingerprint(self) -> Mapping[str, Any]:
        if self.path is not None:
            content = {"sha256": _content_sum(self.path)}
        else:
            content = {"commit": getattr(self.model.config, "_commit_hash", None)}
        versions = " ".join(f"{package} {importlib.metadata.version(package)}" for package in ("transformers", "torch"))
        raw = {"template": "none"} if self._raw else {}
        return {"spec": self.spec, "engine": versions, "device": self.device, **content, **raw}

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        if self._closed:
            raise UsageError(f"{self.spec} was closed; load it again.")
        started = time.perf_counter()
        seeds = [None if params.seed is None else params.seed + i for i in range(max(1, params.n))]
        rows = [_Row(tuple(messages), params, seed) for seed in seeds]
        self._pending.extend(rows)
        self._pool.submit(self._work)
        completions = await asyncio.gather(*(asyncio.wrap_future(row.done) for row in rows))
        usage = Usage(1, sum(map(len, rows[0].prompts)), sum(len(row.tokens) for row in rows))
        return Generation(tuple(completions), self.spec, usage, time.perf_counter() - started)

    def next_token_logits(self, prompts: Sequence[Sequence[int]]) -> Any:
        """The logits (a float32 tensor, prompts × vocabulary) of the token after each of the tokenized prompts."""
        with self._computing, _torch().inference_mode():
            ids, mask = self._padded(prompts)
            return self._forward(ids, mask, _positions(mask))[0].cpu()

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        for name in ("model", "tokenizer", "_room"):
            vars(self).pop(name, None)
        if "device" in vars(self):
            self._free_memory()

    def _load(self, kind: str, **settings: Any) -> Any:
        transformers: Any = importlib.import_module("transformers")
        transformers.utils.logging.set_verbosity_error()
        source = self._name
        if self.path is not None:
            transformers.utils.logging.disable_progress_bar()
            source = str(self.path)
            if self.path.is_file():
                source, settings["gguf_file"] = str(self.path.parent), self.path.name
        try:
            return getattr(transformers, kind).from_pretrained(source, **settings)
        except (OSError, ValueError, KeyError, ImportError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            where = "" if self.path else "; it is no folder here, so it was looked for on the hub (is that reachable?)"
            raise UsageError(f"transformers cannot load {self._name}{where}: {reason}") from None

    def _work(self) -> None:
        """Compute what is waiting, batch by batch; runs in the worker thread."""
        time.sleep(_GATHERING)
        while self._pending:
            rows = self._next_rows()
            with self._computing, _torch().inference_mode():
                ready = [row for row in rows if self._attempt([row], lambda row=row: self._prepare(row))]
                if not self._attempt(ready, lambda ready=ready: self._compute(ready), again=True):
                    self._free_memory()

    def _next_rows(self) -> list[_Row]:
        """The rows that fit into one batch; one that is too wide for any is computed alone."""
        rows = [self._pending.popleft()]
        room = self.batch - rows[0].lines
        while self._pending and self._pending[0].lines <= room:
            rows.append(self._pending.popleft())
            room -= rows[-1].lines
        return rows

    def _attempt(self, rows: Sequence[_Row], step: Callable[[], None], *, again: bool = False) -> bool:
        """Whether a step went well; if not, its rows carry the error, or are done `again` in smaller batches."""
        try:
            step()
        except Exception as error:
            if again and len(rows) > 1 and _is_out_of_memory(error):
                self.batch = max(1, len(rows) // 2)
                self._pending.extendleft(row for row in reversed(rows) if not row.done.done())
            else:
                for row in rows:
                    row.settle(self._failure(error))
            return False
        return True

    def _free_memory(self) -> None:
        if self.device.startswith("cuda"):
            hf_steps.free_memory()

    def _failure(self, error: Exception) -> EvenhandError:
        if isinstance(error, EvenhandError):
            return error
        if _is_out_of_memory(error):
            return ModelError(f"{self.spec} ran out of memory, even with one request at a time; shorten it.")
        said = str(error).strip().partition("\n")[0]  # torch adds paragraphs of advice
        return ModelError(f"{self.spec} failed: {type(error).__name__}: {said}")

    def _prepare(self, row: _Row) -> None:
        against = row.params.steering.against if row.params.steering is not None else ()
        row.prompts = [self._encode(messages) for messages in (row.messages, *against)]
        longest = max(map(len, row.prompts))
        room = self._room
        if longest >= room:
            raise ModelError(f"The prompt has {longest} tokens, but {self.spec} takes {room}; shorten it.")
        row.limit = min(row.params.max_tokens or room, room - longest)
        row.tokens, row.logprobs = [], []
        row.generator = _torch().Generator()
        row.generator.seed() if row.seed is None else row.generator.manual_seed(row.seed % 2**63)

    def _encode(self, messages: Sequence[Message]) -> list[int]:
        if self._raw:
            return self.tokenizer("\n\n".join(message.content for message in messages))["input_ids"]
        chat = [{"role": message.role, "content": message.content} for message in messages]
        # As in llama.cpp, an assistant message at the end is a beginning to be continued.
        begun = chat[-1]["role"] == "assistant"
        text = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=not begun, continue_final_message=begun
        )
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _compute(self, rows: list[_Row]) -> None:
        """Generate all rows to their ends; a finished or cancelled row gets no more tokens."""
        if not rows:
            return
        place: dict[tuple[int, ...], int] = {}  # several completions of one prompt read it once
        lines = [[place.setdefault(tuple(prompt), len(place)) for prompt in row.prompts] for row in rows]
        ids, mask = self._padded(list(place))
        torch, positions = _torch(), _positions(mask)
        logits, cache = self._read(ids, mask, positions)
        most, count = max(row.limit for row in rows), len(mask)
        steps: hf_steps.Steps | None = None
        while going := self._extend(rows, lines, logits):
            steps = steps or hf_steps.steps(self.model, cache, mask, positions, room=self._room, most=most)
            rows, lines = [rows[i] for i in going], [lines[i] for i in going]
            kept = [line for each in lines for line in each]
            if len(kept) <= steps.full * count or len(set(kept)) < len(kept):
                steps.keep(torch.tensor(kept, device=mask.device))
                count = len(kept)
                line = iter(range(count))
                lines = [list(islice(line, len(row.prompts))) for row in rows]
            latest = [0] * count  # lines of finished rows go on with nothing, until it pays to take them out
            for row, each in zip(rows, lines, strict=True):
                for line in each:
                    latest[line] = row.tokens[-1]
            logits = steps.next(torch.tensor(latest, device=mask.device)[:, None])

    def _read(self, ids: Any, mask: Any, positions: Any) -> tuple[Any, Any]:
        """Read the prompts; very many of them in pieces, since reading takes more memory than remembering."""
        rows = max(1, _READ_AT_ONCE // ids.shape[1])
        parts = [
            self._forward(ids[at : at + rows], mask[at : at + rows], positions[at : at + rows])
            for at in range(0, len(ids), rows)
        ]
        whole = parts[0][1]
        for number, layer in enumerate(whole.layers if len(parts) > 1 else ()):
            for name in ("keys", "values"):
                pieces = [getattr(cache.layers[number], name) for _, cache in parts]
                setattr(layer, name, _torch().cat(pieces))
            for _, cache in parts[1:]:
                cache.layers[number].keys = cache.layers[number].values = None
        return _torch().cat([logits for logits, _ in parts]), whole

    def _padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Token ids and mask, padded on the left; what the padding holds does not matter, since it is masked."""
        width = max(len(prompt) for prompt in prompts)
        ids = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return _torch().tensor(ids, device=self.device), _torch().tensor(mask, device=self.device)

    def _forward(self, ids: Any, mask: Any, positions: Any) -> tuple[Any, Any]:
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        output = self.model(**given, use_cache=True, logits_to_keep=1)
        return output.logits[:, -1].float(), output.past_key_values

    def _extend(self, rows: Sequence[_Row], lines: Sequence[Sequence[int]], logits: Any) -> list[int]:
        """Add one token to each row; which of them need more."""
        own = logits[[each[0] for each in lines]]
        for i, row in enumerate(rows):
            if row.params.steering is not None:
                own[i] = steered(logits[list(lines[i])], row.params.steering)
        tokens = draw(own, rows)
        self._note_logprobs(rows, tokens, own)
        return [i for i, token in enumerate(tokens) if self._add(rows[i], token)]

    def _note_logprobs(self, rows: Sequence[_Row], tokens: Sequence[int], logits: Any) -> None:
        """Keep the drawn token's logprob and the likeliest ones' for the rows that ask for them, all in one go."""
        asking = [i for i, row in enumerate(rows) if row.params.logprobs]
        if not asking:
            return
        logprobs = logits[asking].log_softmax(-1)
        drawn = logprobs.gather(1, _torch().tensor([[tokens[i]] for i in asking], device=logprobs.device))
        best = logprobs.topk(max(rows[i].params.logprobs for i in asking))
        found = (drawn[:, 0].tolist(), best.values.tolist(), best.indices.tolist())
        for i, own, values, indices in zip(asking, *found, strict=True):
            most = rows[i].params.logprobs
            top = tuple((self._word(each), p) for each, p in zip(indices[:most], values[:most], strict=True))
            rows[i].logprobs.append(TokenLogprob(self._word(tokens[i]), own, top))

    def _word(self, token: int) -> str:
        """The text of one token, decoded once."""
        if token not in self._words:
            self._words[token] = self._text([token])
        return self._words[token]

    def _add(self, row: _Row, token: int) -> bool:
        """Add a token to a row; False once the row needs no more."""
        row.tokens.append(token)
        stops = row.params.stop
        if token in self._ends or (stops and any(stop in self._text(row.tokens) for stop in stops)):
            row.settle(self._completion(row, "stop"))
        elif len(row.tokens) >= row.limit:
            row.settle(self._completion(row, "length"))
        return not row.done.done()

    def _completion(self, row: _Row, finish: Finish) -> Completion:
        whole = self._text(row.tokens)
        text = whole[: min((whole.find(stop) for stop in row.params.stop if stop in whole), default=len(whole))]
        logprobs = row.logprobs
        if text != whole:  # the tokens of the stop string are no part of the answer
            logprobs = [p for i, p in enumerate(logprobs) if len(self._text(row.tokens[: i + 1])) <= len(text)]
        return Completion(text, finish, logprobs=tuple(logprobs) if row.params.logprobs else None)

    def _text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    @cached_property
    def _ends(self) -> frozenset[int]:
        """The tokens that end a text; a model may have several."""
        stated: Any = self.model.generation_config.eos_token_id
        ids: list[Any] = [*stated] if isinstance(stated, list) else [stated]
        return frozenset(i for i in (*ids, self.tokenizer.eos_token_id) if i is not None)


def _is_out_of_memory(error: Exception) -> bool:
    return type(error).__name__ == "OutOfMemoryError"


def _positions(mask: Any) -> Any:
    return (mask.cumsum(-1) - 1).clamp(min=0)


def _local_path(name: str) -> Path | None:
    """The folder or GGUF file that a name stands for; None for a name on the hub."""
    path = Path(name).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.suffix == ".gguf" or not _HUB_NAME.fullmatch(name):
        raise UsageError(f"There is no model folder or GGUF file {path}; a model on the hub is named hf/OWNER/NAME.")
    return None


def _content_sum(path: Path) -> str:
    """One sum over all files of a model, so that a model trained anew in the same place is another model."""
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    sums = "\n".join(f"{weights.file_sha256(file)}  {file.name}" for file in files)
    return hashlib.sha256(sums.encode()).hexdigest()


def _torch() -> Any:
    return importlib.import_module("torch")
