"""Roll-outs: answers sampled from a policy, with the tokens and masks that PPO needs, and a log of some of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.core.errors import UsageError
from evenhand.core.files import append_json_lines, lines, write_bytes
from evenhand.core.lazy import torch
from evenhand.core.progress import Count
from evenhand.models.hf.decoding import Decoder, decoder, free_memory
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.losses import spread, token_entropies, token_logprobs
from evenhand.training.models import Machine
from evenhand.training.policy_copy import drop, policy_copy

if TYPE_CHECKING:
    from torch import Tensor

SAMPLES = "samples.jsonl"
SAMPLES_PER_STEP = 4
_TOGETHER, _TOGETHER_GPU = 128, 512
"""Prompts that are answered at once; a GPU's are halved when its memory runs out, which a team cannot do."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """Answers to a batch of prompts; prompts are padded on the left, answers on the right (tensors)."""

    ids: Tensor
    """Prompt and answer tokens, rows × (prompt + answer)."""
    mask: Tensor
    """1 where a token is not padding, rows × (prompt + answer)."""
    answer: Tensor
    """1 where a token belongs to the answer, its end token included (float32, rows × answer)."""
    texts: list[str]
    ended: list[bool]
    """Whether an answer has its end token, that is, was not truncated."""
    logprobs: Tensor
    """The log probability with which each answer token was sampled (float32, rows × answer)."""

    def select(self, rows: Sequence[int]) -> Rollout:
        """Return some of the answers, with the same padding."""
        texts, ended = [self.texts[i] for i in rows], [self.ended[i] for i in rows]
        rows = list(rows)
        return Rollout(self.ids[rows], self.mask[rows], self.answer[rows], texts, ended, self.logprobs[rows])

    def to(self, device: str) -> Rollout:
        """Return the answers on a device."""
        tensors = {name: getattr(self, name).to(device) for name in ("ids", "mask", "answer", "logprobs")}
        return replace(self, **tensors)

    @property
    def tokens(self) -> Tensor:
        """The answer tokens, rows × answer."""
        return self.ids[:, -self.answer.shape[1] :]


def roll_out(
    policy: Any,
    chat: Chat,
    prompts: Sequence[Prompt],
    machine: Machine,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    rows: Sequence[int] | None = None,
) -> Rollout:
    """Sample an answer to each prompt from the policy's full distribution, with torch's global random numbers.

    A temperature of 0 decodes greedily and uses no random numbers. Equal prompts are read once, and finished answers
    leave the batch. With `rows`, only these prompts are answered, as they would be among all.
    """
    team = machine.team
    encoded = chat.encode_prompts(prompts, max_new_tokens)
    own = team.own_rows(len(prompts)) if rows is None else list(rows)
    numbers = {prompt: number for number, prompt in enumerate(dict.fromkeys(encoded[i] for i in own))}
    ids, mask = _left_padded(list(numbers), max(map(len, encoded)), chat.tokenizer.pad_token_id, machine.device)
    sequences = torch.tensor([numbers[encoded[i]] for i in own], device=machine.device)
    eos_ids = torch.tensor(sorted(chat.eos_ids), device=machine.device)
    sampler = _Sampler(len(prompts), own, eos_ids, chat.tokenizer.pad_token_id, temperature)
    copy = policy_copy(policy, machine)
    with torch.no_grad(), machine.autocast() if copy is None else nullcontext():
        model = policy if copy is None else copy
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        prefill = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
        logits = prefill.logits[:, -1].float()
        if team.any(not bool(torch.isfinite(logits).all())):
            raise UsageError("The policy's probabilities are not numbers; a lower --lr may help.")
        start = (prefill.past_key_values, mask, positions)
        if copy is not None and copy.decoding is not None and copy.decoding[0].settings == sampler.settings:
            sampler, decode = copy.decoding
            sampler.restart()
            decode.restart(*start, sequences, max_new_tokens=max_new_tokens)
        else:
            if copy is not None:
                copy.decoding = None
            # Graphs are off in a team, since processes compute the steps together.
            limits = {"max_length": chat.max_length, "max_new_tokens": max_new_tokens}
            decode = decoder(model, *start, **limits, use_graphs=team.size == 1, then=sampler)
            decode.keep(sequences)
        tokens, logprobs = _sampled(sampler, decode, sampler(logits[sequences]), max_new_tokens, machine)
    if copy is not None and copy.kept:
        copy.decoding = sampler, decode
    tokens, logprobs, ids, mask = team.all_gather(len(prompts), tokens, logprobs, ids[sequences], mask[sequences])
    is_end = torch.isin(tokens, eos_ids).long()
    answer = is_end.cumsum(1) == is_end  # true up to the first end token
    lengths = answer.sum(1).tolist()
    tokens, answer, logprobs = (each[:, : max(lengths)] for each in (tokens, answer, logprobs))
    texts = [chat.text(row[:n]) for row, n in zip(tokens.tolist(), lengths, strict=True)]
    ids, mask = torch.cat([ids, tokens], 1), torch.cat([mask, answer.long()], 1)
    return Rollout(ids, mask, answer.float(), texts, is_end.any(1).tolist(), logprobs * answer)


def answer_all(
    policy: Any,
    chat: Chat,
    prompts: Sequence[Prompt],
    machine: Machine,
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    observe: Count,
) -> list[tuple[str, bool]]:
    """Return an answer to each prompt, and whether it has its end token; prompts of like length go together."""
    order = sorted(range(len(prompts)), key=lambda i: sum(len(message.content) for message in prompts[i]))
    found: dict[int, tuple[str, bool]] = {}
    size = _TOGETHER_GPU if machine.device.startswith("cuda") and machine.team.size == 1 else _TOGETHER
    while len(found) < len(prompts):
        observe(len(found), len(prompts))
        rollout = None
        chosen = order[len(found) : len(found) + size]
        together = [prompts[i] for i in chosen]
        try:
            rollout = roll_out(policy, chat, together, machine, max_new_tokens=max_new_tokens, temperature=temperature)
        except torch.OutOfMemoryError:
            if len(chosen) == 1 or machine.team.size > 1:
                raise
            size = len(chosen) // 2
        if rollout is None:  # here, since the error holds what its frames hold
            _free(policy)
            continue
        found.update(zip(chosen, zip(rollout.texts, rollout.ended, strict=True), strict=True))
    observe(len(prompts), len(prompts))
    _free(policy)  # since training comes next, here and perhaps in other processes
    return [found[i] for i in range(len(prompts))]


def _free(policy: Any) -> None:
    """Give back the memory of a policy's copy, with its cache."""
    drop(policy)
    free_memory()


class _Sampler:
    """Draws the next token of each answer from its logits, as part of a decoding step; finished answers get padding."""

    def __init__(self, total: int, own: Sequence[int], eos_ids: Any, pad: int, temperature: float) -> None:
        self.settings = (total, tuple(own), pad, temperature, eos_ids.tolist())
        """Batches with equal settings can have one sampler."""
        self.pad = pad
        self._total, self._own, self._eos_ids, self._temperature = total, own, eos_ids, temperature
        self._rows = eos_ids.new_tensor(own)
        self._running = torch.ones(len(own), dtype=torch.bool, device=eos_ids.device)
        self._logprobs = torch.zeros(len(own), device=eos_ids.device)
        self._goes_on: Any = None
        """For each token, whether an answer goes on after it."""
        self.restart()

    def restart(self) -> None:
        """Begin another batch."""
        self._count = len(self._own)
        self._all = list(self._own) == list(range(self._total))
        self._rows.copy_(self._rows.new_tensor(self._own))
        self._running.fill_(True)

    @property
    def running(self) -> Tensor:
        """Whether an answer of the batch is not finished (bool)."""
        return self._running[: self._count]

    @property
    def logprobs(self) -> Tensor:
        """The log probabilities of the latest tokens."""
        return self._logprobs[: self._count]

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the next tokens (answers × 1)."""
        if self._goes_on is None:
            self._goes_on = self._running.new_ones(logits.shape[1])
            self._goes_on[self._eos_ids[self._eos_ids < logits.shape[1]]] = False
        if self._temperature == 0:
            token = logits.argmax(-1, keepdim=True)
        else:
            # As torch.multinomial draws, which would wait for the device. Random numbers are drawn for all rows, so
            # that they do not depend on the number of processes and on the answers that are finished.
            drawn = logits.new_empty(self._total, logits.shape[1], dtype=torch.float32).exponential_()
            if not self._all:
                drawn = drawn[self._rows[: self._count]]
            if self._temperature != 1:
                logits = logits.float() / self._temperature
            token = likeliest(logits, drawn)
        self.logprobs.copy_(token_logprobs(logits, token[:, 0]))
        token = token.masked_fill(~self.running[:, None], self.pad)
        self.running.logical_and_(self._goes_on[token[:, 0]])
        return token

    def keep(self, answers: Tensor) -> None:
        """Continue with these answers only."""
        rows, running = self._rows[answers], self._running[answers]
        self._count, self._all = len(answers), False
        self._rows[: self._count] = rows
        self._running[: self._count] = running


def likeliest(logits: Tensor, drawn: Tensor) -> Tensor:
    """Return the token with the highest ratio of probability to random number; the numbers are overwritten."""
    return torch.sub(logits, drawn.log_(), out=drawn).argmax(-1, keepdim=True)


def _sampled(
    sampler: _Sampler, decode: Decoder, token: Tensor, max_new_tokens: int, machine: Machine
) -> tuple[Tensor, Tensor]:
    """Return all tokens of the answers that begin with these, and their log probabilities (answers × tokens)."""
    every, fewest = pace(machine)
    tokens = token.new_full((len(token), max_new_tokens), sampler.pad)
    logprobs = torch.zeros(tokens.shape, device=token.device)
    answers = torch.arange(len(token), device=token.device)
    for step in range(max_new_tokens):
        tokens[:, step].index_copy_(0, answers, token[:, 0])
        logprobs[:, step].index_copy_(0, answers, sampler.logprobs)
        if step + 1 == max_new_tokens:
            break
        if (step + 1) % every == 0:
            running = int(sampler.running.sum())
            if not machine.team.any(running > 0):
                return tokens[:, : step + 1], logprobs[:, : step + 1]
            count = halved(len(answers), max(running, fewest))
            if count < len(answers):
                kept = sampler.running.int().argsort(descending=True, stable=True)[:count]
                decode.keep(kept)
                sampler.keep(kept)
                answers, token = answers[kept], token[kept]
        token = decode.next(token)
    return tokens, logprobs


def pace(machine: Machine) -> tuple[int, int]:
    """Return after how many tokens finished answers are looked for, and how many answers stay in a batch at least.

    To look is to wait for a GPU, and a GPU computes fewer answers in no less time.
    """
    return (8, 32) if machine.device.startswith("cuda") and machine.team.size == 1 else (1, 1)


def halved(count: int, needed: int) -> int:
    """Halve the size of a batch as long as it holds what is needed, so that few sizes occur."""
    while needed <= (count + 1) // 2 < count:
        count = (count + 1) // 2
    return count


def logprobs_and_entropies(
    policy: Any, rollout: Rollout, machine: Machine, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the log probability and the entropy of every answer token under a policy (float32, rows × answer).

    Both are 0 after the end of an answer.
    """
    width = rollout.answer.shape[1]
    # Padding that all rows share is not computed.
    first, longest = int(rollout.mask.argmax(1).min()), int(rollout.answer.sum(1).max())
    computed = slice(first, rollout.ids.shape[1] - width + longest)
    mask = rollout.mask[:, computed]
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    inputs = {"input_ids": rollout.ids[:, computed], "attention_mask": mask, "position_ids": positions}
    with machine.autocast():
        logits = policy(**inputs, use_cache=False, logits_to_keep=longest + 1).logits[:, :-1]
    at = rollout.answer.bool()
    logits = logits[at[:, :longest]].float()
    if temperature not in (0, 1):  # greedy answers have the probabilities of the model as it is
        logits = logits / temperature
    return spread(token_logprobs(logits, rollout.tokens[at]), at), spread(token_entropies(logits), at)


def _left_padded(rows: Sequence[Sequence[int]], width: int, pad: int, device: str) -> tuple[Tensor, Tensor]:
    ids = [[pad] * (width - len(row)) + list(row) for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


class SampleLog:
    """samples.jsonl: a few answers per step to read, each with its reward and its KL divergence.

    A resumed training repeats some steps, so the lines of those steps are dropped before the first new one.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / SAMPLES
        self._opened = False

    def write(
        self,
        step: int,
        prompts: Sequence[Prompt],
        answers: Sequence[str],
        rewards: Sequence[float],
        divergences: Sequence[float],
    ) -> None:
        """Add the first few answers of a step."""
        if not self._opened:
            self._drop_from(step)
        rows = list(zip(prompts, answers, rewards, divergences, strict=True))[:SAMPLES_PER_STEP]
        append_json_lines(
            self._path,
            (
                {
                    "step": step,
                    "prompt": [asdict(each) for each in prompt],
                    "answer": answer,
                    "reward": reward,
                    "kl": kl,
                }
                for prompt, answer, reward, kl in rows
            ),
        )

    def _drop_from(self, step: int) -> None:
        kept = [line for line in _complete_lines(self._path) if json.loads(line)["step"] < step]
        write_bytes(self._path, b"".join(kept))
        self._opened = True


def _complete_lines(path: Path) -> list[bytes]:
    """Return all lines except one that an interruption cut short."""
    if not path.is_file():
        return []
    return [line for _, line in lines(path) if line.endswith(b"}\n")]
