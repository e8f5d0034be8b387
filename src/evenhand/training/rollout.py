"""Roll-outs: answers sampled from a policy, with everything that PPO needs to know of them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenhand.errors import UsageError
from evenhand.models.hf.steps import steps
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.losses import token_entropies, token_logprobs
from evenhand.training.models import Machine

torch: Any = importlib.import_module("torch")


@dataclass(frozen=True, slots=True)
class Rollout:
    """Answers to a batch of prompts; prompts are padded on the left, answers on the right (tensors)."""

    ids: Any
    """Prompts and answers, rows × (prompt + answer)."""
    mask: Any
    answer: Any
    """Which tokens belong to an answer, its end included (float32, rows × answer)."""
    texts: list[str]
    ended: list[bool]
    """Whether an answer came to its end by itself."""

    def part(self, rows: Sequence[int]) -> Rollout:
        """Some of the answers, padded as before."""
        texts, ended = [self.texts[i] for i in rows], [self.ended[i] for i in rows]
        rows = list(rows)
        return Rollout(self.ids[rows], self.mask[rows], self.answer[rows], texts, ended)

    @property
    def tokens(self) -> Any:
        """The answers alone, rows × answer."""
        return self.ids[:, -self.answer.shape[1] :]


def roll_out(
    policy: Any, chat: Chat, prompts: Sequence[Prompt], machine: Machine, *, longest: int, temperature: float = 1.0
) -> Rollout:
    """Sample an answer to each prompt from the policy's whole distribution, with torch's own random numbers.

    A temperature of 0 takes the likeliest token every time, and no random numbers.
    """
    team = machine.team
    mine = torch.tensor(team.rows(len(prompts)), device=machine.device)
    ids, mask = (each[mine] for each in _left_padded(chat, prompts, longest, machine.device))
    pad = chat.tokenizer.pad_token_id
    ends = torch.tensor(sorted(chat.ends), device=machine.device)
    going = torch.ones(len(mine), dtype=torch.bool, device=machine.device)
    answer: list[Any] = []
    with torch.no_grad(), machine.autocast():  # one context for all tokens, so that weights are cast only once
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        read = policy(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
        logits = read.logits[:, -1].float()
        if team.any(not bool(torch.isfinite(logits).all())):
            raise UsageError("The policy's probabilities are not numbers; a lower --lr may help.")
        alone, begun = team.size == 1, (read.past_key_values, mask, positions)
        following = steps(policy, *begun, room=chat.max_length, most=longest, recorded=alone)
        while True:
            # Random numbers are drawn for all rows, so that they do not depend on the number of processes.
            every = logits.new_zeros(len(prompts), logits.shape[1]).index_copy(0, mine, logits)
            token = _chosen(every, temperature)[mine].masked_fill(~going[:, None], pad)
            answer.append(going.clone())
            ids, mask = torch.cat([ids, token], 1), torch.cat([mask, going[:, None].long()], 1)
            going = going & ~torch.isin(token[:, 0], ends)
            if len(answer) == longest or not team.any(bool(going.any())):
                break
            logits = following.next(token)
    kept = torch.stack(answer, 1).float()
    ids, mask, kept, going = team.gathered(len(prompts), ids, mask, kept, going.long())
    lengths = kept.sum(1).long().tolist()
    texts = [chat.text(row[:n]) for row, n in zip(ids[:, -kept.shape[1] :].tolist(), lengths, strict=True)]
    return Rollout(ids, mask, kept, texts, [not each for each in going.tolist()])


def measured(policy: Any, rollout: Rollout, machine: Machine, temperature: float = 1.0) -> tuple[Any, Any]:
    """Log probability and entropy of every answer token under a policy (float32, rows × answer)."""
    width = rollout.answer.shape[1]
    positions = (rollout.mask.cumsum(-1) - 1).clamp(min=0)
    given = {"input_ids": rollout.ids, "attention_mask": rollout.mask, "position_ids": positions}
    with machine.autocast():
        logits = policy(**given, use_cache=False, logits_to_keep=width + 1).logits[:, :-1]
    logits = logits.float() / temperature
    return token_logprobs(logits, rollout.tokens), token_entropies(logits)


def _chosen(logits: Any, temperature: float) -> Any:
    """The next token of each row (rows × 1)."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    return torch.multinomial((logits / temperature).softmax(-1), 1)


def _left_padded(chat: Chat, prompts: Sequence[Prompt], room: int, device: str) -> tuple[Any, Any]:
    rows = [chat.opening(prompt, room) for prompt in prompts]
    width = max(map(len, rows))
    ids = [[chat.tokenizer.pad_token_id] * (width - len(row)) + list(row) for row in rows]
    mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


SAMPLES = "samples.jsonl"
MOST = 4
"""Answers kept of a step."""


class Samples:
    """The file; a resumed training takes some steps again, so lines of those steps go before the first new one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / SAMPLES
        self._begun = False

    def write(
        self,
        step: int,
        prompts: Sequence[Prompt],
        answers: Sequence[str],
        rewards: Sequence[float],
        divergences: Sequence[float],
    ) -> None:
        """Add the first few answers of a step."""
        if not self._begun:
            self._drop_from(step)
        rows = list(zip(prompts, answers, rewards, divergences, strict=True))[:MOST]
        with self._path.open("a", encoding="utf-8") as file:
            for prompt, answer, reward, kl in rows:
                asked = [asdict(message) for message in prompt]
                row: dict[str, Any] = {"step": step, "prompt": asked, "answer": answer, "reward": reward, "kl": kl}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _drop_from(self, step: int) -> None:
        kept = [line for line in _whole_lines(self._path) if json.loads(line)["step"] < step]
        draft = self._path.with_name(SAMPLES + ".partial")
        draft.write_text("".join(kept), encoding="utf-8")
        draft.replace(self._path)
        self._begun = True


def _whole_lines(path: Path) -> list[str]:
    """All lines but one that an interruption cut short."""
    if not path.is_file():
        return []
    return [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("}\n")]
