"""Models run by Hugging Face transformers: slower than `local` on a CPU, but with full logits and on GPUs.

Waiting requests are computed as one left-padded batch in a single worker thread; those that come later take the places
of completions that have ended, so that one long answer does not hold up the rest. Each completion has its own sampling
parameters and random generator, so its text depends on its seed and not on the rest of the batch. A steered completion
takes several sequences of the batch: its own, and one for each conversation to steer away from.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import importlib.util
import json
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
from typing import TYPE_CHECKING, Any, Protocol

from evenhand.core.errors import EvenhandError, MissingExtraError, ModelError, UsageError
from evenhand.core.lazy import peft, torch, transformers
from evenhand.core.types import Completion, Finish, Generation, Message, Params, Steering, TokenLogprob, Usage
from evenhand.models import weights
from evenhand.models.base import PROVIDERS, START, Feature, Model, ModelOptions
from evenhand.models.hf import decoding
from evenhand.models.hf.tuning import tune

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_BATCH, GPU_BATCH = 16, 128
"""Sequences per batch; halved when memory runs out."""
_BATCH_DELAY = 0.005
"""Seconds to wait for more requests before a batch starts."""
_JOIN_EVERY = 16
"""Tokens after which waiting requests may join a batch: reading their prompts takes as long as several tokens."""
_JOIN_SHARE = 8
"""They join if there are at least this part of the running ones, an eighth."""
_PREFILL_TOKENS = 1 << 16
"""The maximum number of prompt tokens, padding included, in one forward pass."""
_TOP_TOKENS = 1024
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(slots=True, eq=False)
class _Row:
    """One completion in progress."""

    messages: Sequence[Message]
    params: Params
    seed: int | None
    done: Future[Completion] = field(default_factory=Future[Completion])
    prompts: list[list[int]] = field(default_factory=list[list[int]])
    """Its own prompt, tokenized, and those of the conversations to steer away from."""
    limit: int = 0
    generator: Any = None
    tokens: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])

    @property
    def sequences(self) -> int:
        """How many sequences of a batch the completion takes."""
        return 1 + (len(self.params.steering.against) if self.params.steering is not None else 0)

    def finish(self, outcome: Completion | Exception) -> None:
        with suppress(InvalidStateError):  # the request was cancelled in the meantime
            if isinstance(outcome, Exception):
                self.done.set_exception(outcome)
            else:
                self.done.set_result(outcome)


@PROVIDERS.register("hf")
class HFModel(Model):
    """The specs `hf/FOLDER`, `hf/OWNER/NAME` (from the hub) and `hf/FILE.gguf`; no temperature means greedy.

    Options: `batch` (the maximum number of sequences per batch; fewer if memory runs out), `device` (`cuda`, `cpu`),
    `template` (`none` joins the contents of the messages instead of applying the chat template, for base models).
    """

    features: frozenset[Feature] = frozenset({"logprobs", "seed", "logits", "likelihood"})
    free = True
    replicable = True
    fixed = True
    takes = frozenset({"batch", "device", "template"})

    def __init__(self, name: str, options: ModelOptions) -> None:
        if self.unavailable():
            raise MissingExtraError("hf/ models", "hf")
        self.spec = f"hf/{name}"
        self._files = ModelFiles(name)
        self.path = self._files.path
        # The weights below an adapter lie elsewhere and are not part of its sum.
        self.fixed = self.path is None or not (self.path / "adapter_config.json").is_file()
        self._concurrency = max(1, options.concurrency)
        self._wanted_batch: int | None = None if "batch" not in options.extra else int(options.extra["batch"])
        self._device: str | None = options.extra.get("device")
        self._raw = self.continues_text = options.extra.get("template") == "none"
        self._pool = ThreadPoolExecutor(1, "hf-model")
        self._computing = threading.RLock()
        self._pending: deque[_Row] = deque()
        self._closed = False
        self._words: dict[int, str] = {}

    @classmethod
    def unavailable(cls) -> str | None:
        if any(importlib.util.find_spec(package) is None for package in ("torch", "transformers")):
            return str(MissingExtraError("hf/ models", "hf"))
        return None

    @cached_property
    def device(self) -> str:
        return self._device or ("cuda" if torch.cuda.is_available() else "cpu")

    @cached_property
    def batch(self) -> int:
        """The maximum number of sequences per batch."""
        usual = GPU_BATCH if self.device.startswith("cuda") else DEFAULT_BATCH
        return self._wanted_batch or min(usual, self._concurrency)

    @cached_property
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""
        tokenizer = self._files.load("AutoTokenizer")
        if not tokenizer.chat_template and not self._raw:
            raise UsageError(
                f"{self.spec} has no chat template, so it is probably a base model: use its instruct version, or set "
                "the model option template=none to send the text as it is."
            )
        return tokenizer

    @cached_property
    def model(self) -> Any:
        """The transformers model, in evaluation mode on its device; loaded on first use."""
        dtype = torch.bfloat16 if self.device.startswith("cuda") else torch.float32
        model = self._files.load_causal(dtype).to(self.device).eval()
        tune(model)
        return model

    @cached_property
    def _max_length(self) -> int:
        """The context length in tokens."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or 1 << 30

    def fingerprint(self) -> Mapping[str, Any]:
        if self.path is not None:
            content = {"sha256": content_sum(self.path)}
        else:
            content = {"commit": getattr(self.model.config, "_commit_hash", None)}
        versions = " ".join(f"{package} {importlib.metadata.version(package)}" for package in ("transformers", "torch"))
        raw = {"template": "none"} if self._raw else {}
        return {"spec": self.spec, "engine": versions, "device": self.device, **content, **raw}

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        if self._closed:
            raise UsageError(f"{self.spec} was closed; load it again.")
        started = time.perf_counter()
        if params.given:
            work = self._pool.submit(self._score, params.given)
            completions, tokens = await asyncio.wrap_future(work)
            return Generation(tuple(completions), self.spec, Usage(1, tokens), time.perf_counter() - started)
        seeds = [None if params.seed is None else params.seed + i for i in range(max(1, params.n))]
        rows = [_Row(tuple(messages), params, seed) for seed in seeds]
        self._pending.extend(rows)
        self._pool.submit(self._work)
        completions = await asyncio.gather(*(asyncio.wrap_future(row.done) for row in rows))
        usage = Usage(1, sum(map(len, rows[0].prompts)), sum(len(row.tokens) for row in rows))
        return Generation(tuple(completions), self.spec, usage, time.perf_counter() - started)

    def next_token_logits(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Return the logits of the token after each tokenized prompt (float32 tensor, prompts × vocabulary)."""
        with self._computing, torch.inference_mode():
            ids, mask = self._padded(prompts)
            return self._forward(ids, mask, _positions(mask))[0].cpu()

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        for name in ("model", "tokenizer", "_max_length"):
            vars(self).pop(name, None)
        if "device" in vars(self):
            self._free_memory()

    def _score(self, texts: Sequence[str]) -> tuple[list[Completion], int]:
        """Score given texts; runs in the worker thread."""
        try:
            with self._computing, torch.inference_mode():
                return score_texts(self.model, self.tokenizer, texts, self._max_length, self._word)
        except Exception as error:
            raise self._failure(error) from error

    def _work(self) -> None:
        """Compute the waiting completions batch by batch; runs in the worker thread."""
        time.sleep(_BATCH_DELAY)
        while self._pending:
            with self._computing, torch.inference_mode():
                ready = self._next_rows(self.batch, alone=True)
                if not self._attempt(ready, lambda ready=ready: self._compute(ready), retry=True):
                    self._free_memory()

    def _next_rows(self, free: int, *, alone: bool) -> list[_Row]:
        """Take the completions that fit into so many sequences; one that is larger than a batch is computed alone.

        Those with the oldest one's token limit come first: a batch runs until its longest answer ends.
        """
        found = [self._pending.popleft() for _ in range(len(self._pending))]
        waiting = [row for row in found if not row.done.done()]  # cancelled ones are not read
        limit, taken = waiting[0].params.max_tokens if waiting else None, set[int]()
        for i in sorted(range(len(waiting)), key=lambda i: waiting[i].params.max_tokens != limit):
            if (alone and not taken) or waiting[i].sequences <= free:
                taken.add(i)
                free -= waiting[i].sequences
        self._pending.extendleft(row for i, row in reversed([*enumerate(waiting)]) if i not in taken)
        rows = [waiting[i] for i in sorted(taken)]
        return [row for row in rows if self._attempt([row], lambda row=row: self._prepare(row))]

    def _attempt(self, rows: Sequence[_Row], step: Callable[[], None], *, retry: bool = False) -> bool:
        """Run a step and return whether it succeeded.

        If it fails, its rows get the error; with `retry`, rows that ran out of memory wait for a smaller batch.
        """
        try:
            step()
        except Exception as error:
            if retry and len(rows) > 1 and _is_out_of_memory(error):
                self.batch = max(1, len(rows) // 2)
                self._pending.extendleft(row for row in reversed(rows) if not row.done.done())
            else:
                for row in rows:
                    row.finish(self._failure(error))
            return False
        return True

    def _free_memory(self) -> None:
        if self.device.startswith("cuda"):
            decoding.free_memory()

    def _failure(self, error: Exception) -> EvenhandError:
        if isinstance(error, EvenhandError):
            return error
        if _is_out_of_memory(error):
            return ModelError(f"{self.spec} ran out of memory with a single request; shorten the request.")
        reason = str(error).strip().partition("\n")[0]  # torch adds paragraphs of advice
        return ModelError(f"{self.spec} failed: {type(error).__name__}: {reason}")

    def _prepare(self, row: _Row) -> None:
        against = row.params.steering.against if row.params.steering is not None else ()
        row.prompts = [self._encode(messages, row.params.template) for messages in (row.messages, *against)]
        longest = max(map(len, row.prompts))
        most = self._max_length
        if longest >= most:
            raise ModelError(f"The prompt has {longest} tokens, but {self.spec} takes {most}; shorten it.")
        row.limit = min(row.params.max_tokens or most, most - longest)
        row.tokens, row.logprobs = [], []
        row.generator = torch.Generator()
        row.generator.seed() if row.seed is None else row.generator.manual_seed(row.seed % 2**63)

    def _encode(self, messages: Sequence[Message], template: Mapping[str, Any] | None = None) -> list[int]:
        if self._raw:
            return self.tokenizer("\n\n".join(message.content for message in messages))["input_ids"]
        chat = [{"role": message.role, "content": message.content} for message in messages]
        # As in llama.cpp, a final assistant message is the beginning of the answer and is continued.
        begun = template is None and chat[-1]["role"] == "assistant"
        text = self.tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=not begun, continue_final_message=begun, **(template or {})
        )
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _compute(self, everyone: list[_Row]) -> None:
        """Generate all rows to their end; a finished or cancelled row gets no more tokens.

        Rows that join are added to `everyone`, and those that have ended are removed.
        """
        if not everyone:
            return
        rows, (sequences, logits, *start) = everyone, self._begun(everyone)
        most, count = max(row.limit for row in rows), len(logits)
        decoder: decoding.Decoder | None = None
        steps = 0
        while running := self._extend(rows, sequences, logits):
            decoder = decoder or decoding.decoder(self.model, *start, max_length=self._max_length, max_new_tokens=most)
            rows, sequences = [rows[i] for i in running], [sequences[i] for i in running]
            kept = [i for own in sequences for i in own]
            steps += 1
            more = list[_Row]()
            free = self.batch - len(kept)
            some = _JOIN_SHARE * min(len(self._pending), free) >= len(kept)
            if decoder.joins and steps % _JOIN_EVERY == 0 and some:
                more = self._next_rows(free, alone=False)
                everyone[:] = [*rows, *more]
                more = self._joined(decoder, kept, more)
                rows = [*rows, *more]
            leave = not more and (len(kept) <= decoder.full * count or len(set(kept)) < len(kept))
            if leave:
                decoder.keep(torch.tensor(kept, device=self.device))
            if leave or more:
                sequences, count = _numbered(rows), decoder.count
            latest = [0] * count  # finished sequences get a dummy token until it pays to remove them
            for row, own in zip(rows, sequences, strict=True):
                for i in own:
                    latest[i] = row.tokens[-1]
            logits = decoder.next(torch.tensor(latest, device=self.device)[:, None])

    def _begun(self, rows: Sequence[_Row]) -> tuple[list[list[int]], Tensor, Any, Tensor, Tensor]:
        """Read the prompts; return the sequences of each row, their next logits, cache, mask and positions."""
        index: dict[tuple[int, ...], int] = {}  # several completions of one prompt share its prefill
        sequences = [[index.setdefault(tuple(prompt), len(index)) for prompt in row.prompts] for row in rows]
        ids, mask = self._padded(list(index))
        positions = _positions(mask)
        return sequences, *self._prefill(ids, mask, positions), mask, positions

    def _joined(self, decoder: decoding.Decoder, kept: Sequence[int], rows: Sequence[_Row]) -> list[_Row]:
        """Begin more rows in a running batch, after its sequences `kept`; return those that need more tokens."""
        if not rows:
            return []
        sequences, logits, cache, mask, positions = self._begun(rows)
        running = self._extend(rows, sequences, logits)
        if running:
            chosen = [i for number in running for i in sequences[number]]
            most = max(rows[i].limit for i in running)
            decoder.keep(torch.tensor(kept, device=self.device))
            own = torch.tensor(chosen, device=self.device)
            decoder.join(cache, mask, positions, own, max_new_tokens=most)
        return [rows[i] for i in running]

    def _prefill(self, ids: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Any]:
        """Read the prompts; large batches in chunks, since a forward pass takes more memory than its cache."""
        rows = max(1, _PREFILL_TOKENS // ids.shape[1])
        chunks = [
            self._forward(ids[at : at + rows], mask[at : at + rows], positions[at : at + rows])
            for at in range(0, len(ids), rows)
        ]
        whole = chunks[0][1]
        for number, layer in enumerate(whole.layers if len(chunks) > 1 else ()):
            for name in ("keys", "values"):
                pieces = [getattr(cache.layers[number], name) for _, cache in chunks]
                setattr(layer, name, torch.cat(pieces))
            for _, cache in chunks[1:]:
                cache.layers[number].keys = cache.layers[number].values = None
        return torch.cat([logits for logits, _ in chunks]), whole

    def _padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Return token ids and mask, padded on the left; the padding is masked, so its ids do not matter."""
        width = max(len(prompt) for prompt in prompts)
        ids = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return torch.tensor(ids, device=self.device), torch.tensor(mask, device=self.device)

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Any]:
        inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
        output = self.model(**inputs, use_cache=True, logits_to_keep=1)
        return output.logits[:, -1].float(), output.past_key_values

    def _extend(self, rows: Sequence[_Row], sequences: Sequence[Sequence[int]], logits: Tensor) -> list[int]:
        """Add one token to each row; return the rows that need more."""
        own = logits[[each[0] for each in sequences]]
        for i, row in enumerate(rows):
            if row.params.steering is not None:
                own[i] = steered(logits[list(sequences[i])], row.params.steering)
        tokens = sample(own, rows)
        self._store_logprobs(rows, tokens, own)
        return [i for i, token in enumerate(tokens) if self._add(rows[i], token)]

    def _store_logprobs(self, rows: Sequence[_Row], tokens: Sequence[int], logits: Any) -> None:
        """Store the logprobs of the sampled and the likeliest tokens for the rows that ask for them."""
        asking = [i for i, row in enumerate(rows) if row.params.logprobs]
        if not asking:
            return
        logprobs = logits[asking].log_softmax(-1)
        drawn = logprobs.gather(1, torch.tensor([[tokens[i]] for i in asking], device=logprobs.device))
        best = logprobs.topk(max(rows[i].params.logprobs for i in asking))
        columns = (drawn[:, 0].tolist(), best.values.tolist(), best.indices.tolist())
        for i, own, values, indices in zip(asking, *columns, strict=True):
            most = rows[i].params.logprobs
            top = tuple((self._word(each), p) for each, p in zip(indices[:most], values[:most], strict=True))
            rows[i].logprobs.append(TokenLogprob(self._word(tokens[i]), own, top))

    def _word(self, token: int) -> str:
        """Return the text of one token; decoded once."""
        if token not in self._words:
            self._words[token] = self._text([token])
        return self._words[token]

    def _add(self, row: _Row, token: int) -> bool:
        """Add a token to a row; return False if the row is finished."""
        row.tokens.append(token)
        stops = row.params.stop
        if token in self._eos_ids or (stops and any(stop in self._text(row.tokens) for stop in stops)):
            row.finish(self._completion(row, "stop"))
        elif len(row.tokens) >= row.limit:
            row.finish(self._completion(row, "length"))
        return not row.done.done()

    def _completion(self, row: _Row, finish: Finish) -> Completion:
        whole = self._text(row.tokens)
        text = whole[: min((whole.find(stop) for stop in row.params.stop if stop in whole), default=len(whole))]
        logprobs = row.logprobs
        if text != whole:  # the tokens of the stop string are not part of the answer
            logprobs = [p for i, p in enumerate(logprobs) if len(self._text(row.tokens[: i + 1])) <= len(text)]
        return Completion(text, finish, logprobs=tuple(logprobs) if row.params.logprobs else None)

    def _text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    @cached_property
    def _eos_ids(self) -> frozenset[int]:
        return end_tokens(self.model, self.tokenizer)


def _numbered(rows: Sequence[_Row]) -> list[list[int]]:
    """Return the sequences of rows that lie one after another."""
    numbers = iter(range(sum(len(row.prompts) for row in rows)))
    return [list(islice(numbers, len(row.prompts))) for row in rows]


def end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the end-of-turn tokens; a model may have several, and a classifier has no generation config."""
    stated: Any = (getattr(model, "generation_config", None) or model.config).eos_token_id
    ids: list[Any] = [*stated] if isinstance(stated, list) else [stated]
    return frozenset(i for i in (*ids, tokenizer.eos_token_id) if i is not None)


def _is_out_of_memory(error: Exception) -> bool:
    return type(error).__name__ == "OutOfMemoryError"


def _positions(mask: Tensor) -> Tensor:
    return (mask.cumsum(-1) - 1).clamp(min=0)


class SampledRow(Protocol):
    """What sampling needs to know about a row."""

    @property
    def params(self) -> Params: ...
    @property
    def generator(self) -> Any: ...


def sample(logits: Any, rows: Sequence[SampledRow]) -> list[int]:
    """Return the next token of each row: greedy, or sampled with temperature, then top_p."""
    tokens: list[int] = logits.argmax(-1).tolist()
    sampled = [i for i, row in enumerate(rows) if row.params.temperature]
    if sampled:
        drawn = _sample(logits if len(sampled) == len(rows) else logits[sampled], [rows[i] for i in sampled])
        for i, token in zip(sampled, drawn, strict=True):
            tokens[i] = token
    return tokens


def _sample(logits: Tensor, rows: Sequence[SampledRow]) -> list[int]:

    def column(values: Sequence[float | None]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    probabilities = (logits.double() / column([row.params.temperature for row in rows])).softmax(-1)
    cut = [i for i, row in enumerate(rows) if row.params.top_p is not None and row.params.top_p < 1]
    if cut:
        part = probabilities[cut]
        probabilities[cut] = part * (part >= _top_p_cutoff(part, column([rows[i].params.top_p for i in cut])))
    cumulative = probabilities.cumsum(-1)
    drawn = column([torch.rand(1, generator=row.generator, dtype=cumulative.dtype).item() for row in rows])
    tokens = torch.searchsorted(cumulative, drawn * cumulative[:, -1:], right=True)
    return tokens.clamp(max=cumulative.shape[-1] - 1)[:, 0].tolist()


def _top_p_cutoff(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """Return the smallest probability that top_p keeps, per row. Tokens tied with it are kept too.

    Most distributions need only their likeliest tokens for this, so the whole vocabulary is rarely sorted.
    """
    best = probabilities.topk(min(_TOP_TOKENS, probabilities.shape[-1])).values
    if bool((best.sum(-1, keepdim=True) < top_p).any()):
        best = probabilities.sort(descending=True).values
    kept = (best.cumsum(-1) - best < top_p).sum(-1, keepdim=True)
    return best.gather(-1, kept.clamp(min=1) - 1)


def steered(logits: Tensor, steering: Steering) -> Tensor:
    """Return the steered logits of a row from its own (the first) and those of the texts to steer away from.

    Self-debiasing (Schick et al., 2021): a token that any of these texts makes likelier is weighted by
    exp(−decay · difference in probability), but at least by `epsilon`. The log of the weight is added to the logit.
    """
    probabilities = logits.softmax(-1)
    excess = (probabilities[1:].amax(0) - probabilities[0]).clamp(min=0)
    return logits[0] + (-steering.decay * excess).exp().clamp(min=steering.epsilon).log()


def score_texts(
    model: Any, tokenizer: Any, texts: Sequence[str], longest: int, word: Callable[[int], str]
) -> tuple[list[Completion], int]:
    """Return the texts with the log-probability of each token, and how many tokens were read."""
    start: list[int] = tokenizer(START)["input_ids"]
    own: list[list[int]] = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    rows = [start + ids for ids in own]
    width = max(map(len, rows))
    if width > longest:
        raise ModelError(f"A text has {width} tokens, but the model takes {longest}; shorten it.")
    # Padded on the right: what comes after a text does not change its probabilities.
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows], device=model.device)
    mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=model.device)
    logprobs = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float().log_softmax(-1)
    found = logprobs.gather(-1, ids[:, 1:, None])[..., 0].tolist()
    completions = [
        Completion(
            text,
            logprobs=tuple(
                TokenLogprob(word(token), value)
                for token, value in zip(tokens, values[len(start) - 1 : len(row) - 1], strict=True)
            ),
        )
        for text, tokens, row, values in zip(texts, own, rows, found, strict=True)
    ]
    return completions, sum(map(len, rows))


class ModelFiles:
    """A model's folder, adapter, GGUF file or name on the hub; nothing is read before it is needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.path = _local_path(name)

    @cached_property
    def gguf(self) -> Path | None:
        """The GGUF file with the weights: the path itself, or that of an adapter's base model."""
        if self.path is None or self.path.is_file():
            return self.path
        adapter = self.path / "adapter_config.json"
        base = json.loads(adapter.read_bytes())["base_model_name_or_path"] if adapter.is_file() else None
        if not base or (not base.startswith("local/") and not base.endswith(".gguf")):
            return None  # transformers loads other bases itself
        return weights.find(base.removeprefix("local/"))

    def load(self, kind: str, **settings: Any) -> Any:
        """Load a class of transformers by name."""
        transformers.utils.logging.set_verbosity_error()
        source = self._name
        if self.path is not None:
            transformers.utils.logging.disable_progress_bar()
            source = str(self.path)
            if self.gguf is not None and (self.path.is_file() or kind != "AutoTokenizer"):
                source, settings["gguf_file"] = str(self.gguf.parent), self.gguf.name
        try:
            return getattr(transformers, kind).from_pretrained(source, **settings)
        except (OSError, ValueError, KeyError, ImportError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            where = "" if self.path else "; there is no such folder here, and the hub may not be reachable"
            raise UsageError(f"transformers cannot load {self._name}{where}: {reason}") from None

    def load_causal(self, dtype: Any) -> Any:
        """Load the language model; an adapter is merged into the weights of a GGUF file."""
        model = self.load("AutoModelForCausalLM", dtype=dtype)
        if self.gguf is not None and self.gguf != self.path:
            model = peft.PeftModel.from_pretrained(model, str(self.path)).merge_and_unload()
        return model


def _local_path(name: str) -> Path | None:
    """Return the folder or GGUF file of a name; None for a name on the hub."""
    path = Path(name).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    if path.suffix == ".gguf" or not _HUB_NAME.fullmatch(name):
        raise UsageError(f"There is no model folder or GGUF file {path}; a model on the hub is named hf/OWNER/NAME.")
    return None


def content_sum(path: Path) -> str:
    """Return one checksum over all files of a model, so that retraining into the same folder makes another model."""
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if file.is_file())
    sums = "\n".join(f"{weights.file_sha256(file)}  {file.name}" for file in files)
    return hashlib.sha256(sums.encode()).hexdigest()
