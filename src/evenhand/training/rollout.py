"""Roll-outs: answers sampled from a policy, with the tokens and masks that PPO needs, and a log of some of them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenhand.errors import UsageError
from evenhand.models.hf.decoding import decoder
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.losses import token_entropies, token_logprobs
from evenhand.training.models import Machine

torch: Any = importlib.import_module("torch")

SAMPLES = "samples.jsonl"
SAMPLES_PER_STEP = 4


@dataclass(frozen=True, slots=True)
class Rollout:
    """Answers to a batch of prompts; prompts are padded on the left, answers on the right (tensors)."""

    ids: Any
    """Prompt and answer tokens, rows × (prompt + answer)."""
    mask: Any
    """1 where a token is not padding, rows × (prompt + answer)."""
    answer: Any
    """1 where a token belongs to the answer, its end token included (float32, rows × answer)."""
    texts: list[str]
    ended: list[bool]
    """Whether an answer has its end token, that is, was not truncated."""

    def select(self, rows: Sequence[int]) -> Rollout:
        """Return some of the answers, with the same padding."""
        texts, ended = [self.texts[i] for i in rows], [self.ended[i] for i in rows]
        rows = list(rows)
        return Rollout(self.ids[rows], self.mask[rows], self.answer[rows], texts, ended)

    @property
    def tokens(self) -> Any:
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
) -> Rollout:
    """Sample an answer to each prompt from the policy's full distribution, with torch's global random numbers.

    A temperature of 0 decodes greedily and uses no random numbers.
    """
    team = machine.team
    own = torch.tensor(team.own_rows(len(prompts)), device=machine.device)
    ids, mask = (each[own] for each in _left_padded(chat, prompts, max_new_tokens, machine.device))
    pad = chat.tokenizer.pad_token_id
    eos_ids = torch.tensor(sorted(chat.eos_ids), device=machine.device)
    running = torch.ones(len(own), dtype=torch.bool, device=machine.device)
    answer: list[Any] = []
    with torch.no_grad(), machine.autocast():  # one context for all tokens, so that weights are cast only once
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        prefill = policy(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
        logits = prefill.logits[:, -1].float()
        if team.any(not bool(torch.isfinite(logits).all())):
            raise UsageError("The policy's probabilities are not numbers; a lower --lr may help.")
        start = (prefill.past_key_values, mask, positions)
        # Graphs are off in a team, since processes compute the steps together.
        limits = {"max_length": chat.max_length, "max_new_tokens": max_new_tokens}
        decode = decoder(policy, *start, **limits, use_graphs=team.size == 1)
        while True:
            # Random numbers are drawn for all rows, so that they do not depend on the number of processes.
            all_logits = logits.new_zeros(len(prompts), logits.shape[1]).index_copy(0, own, logits)
            token = _sampled(all_logits, temperature)[own].masked_fill(~running[:, None], pad)
            answer.append(running.clone())
            ids, mask = torch.cat([ids, token], 1), torch.cat([mask, running[:, None].long()], 1)
            running = running & ~torch.isin(token[:, 0], eos_ids)
            if len(answer) == max_new_tokens or not team.any(bool(running.any())):
                break
            logits = decode.next(token)
    answer_mask = torch.stack(answer, 1).float()
    ids, mask, answer_mask, running = team.all_gather(len(prompts), ids, mask, answer_mask, running.long())
    lengths = answer_mask.sum(1).long().tolist()
    texts = [chat.text(row[:n]) for row, n in zip(ids[:, -answer_mask.shape[1] :].tolist(), lengths, strict=True)]
    return Rollout(ids, mask, answer_mask, texts, [not each for each in running.tolist()])


def logprobs_and_entropies(
    policy: Any, rollout: Rollout, machine: Machine, temperature: float = 1.0
) -> tuple[Any, Any]:
    """Return the log probability and the entropy of every answer token under a policy (float32, rows × answer).

    Both are 0 after the longest answer.
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
    logits = logits.float() / temperature
    values = token_logprobs(logits, rollout.tokens[:, :longest]), token_entropies(logits)
    logprobs, entropies = (torch.nn.functional.pad(each, (0, width - longest)) for each in values)
    return logprobs, entropies


def _sampled(logits: Any, temperature: float) -> Any:
    """Return the next token of each row (rows × 1)."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial((logits / temperature).softmax(-1), 1)


def _left_padded(chat: Chat, prompts: Sequence[Prompt], room: int, device: str) -> tuple[Any, Any]:
    rows = [chat.encode_prompt(prompt, room) for prompt in prompts]
    width = max(map(len, rows))
    ids = [[chat.tokenizer.pad_token_id] * (width - len(row)) + list(row) for row in rows]
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
        with self._path.open("a", encoding="utf-8") as file:
            for prompt, answer, reward, kl in rows:
                messages = [asdict(message) for message in prompt]
                row: dict[str, Any] = {"step": step, "prompt": messages, "answer": answer, "reward": reward, "kl": kl}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _drop_from(self, step: int) -> None:
        kept = [line for line in _complete_lines(self._path) if json.loads(line)["step"] < step]
        draft = self._path.with_name(SAMPLES + ".partial")
        draft.write_text("".join(kept), encoding="utf-8")
        draft.replace(self._path)
        self._opened = True


def _complete_lines(path: Path) -> list[str]:
    """Return all lines except one that an interruption cut short."""
    if not path.is_file():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("}\n")]
