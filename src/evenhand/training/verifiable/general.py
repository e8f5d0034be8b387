"""The model's own answers to general prompts: mixed into the fine-tuning, they keep what the model could do before.

Training on samples of a model minimizes the KL divergence of the trained model from it on these prompts.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from evenhand.core.files import json_lines, write_json_lines
from evenhand.core.progress import Count
from evenhand.core.types import Message
from evenhand.training.chat import Chat, Encoded
from evenhand.training.data import Prompt
from evenhand.training.loop import step_seed
from evenhand.training.losses import torch
from evenhand.training.models import Machine
from evenhand.training.rollout import roll_out
from evenhand.training.stage import chunks
from evenhand.training.verifiable.comparisons import comparison_prompts

FILE = "general.jsonl"
_COMPARISONS = 0.6
"""Share of the prompts that are comparisons without a passage, whose answers are short."""
_SHORT = 8
"""Tokens of the answer to a comparison."""
_PROMPTS = Path(__file__).with_name("general.txt")


def general_prompts() -> list[Prompt]:
    """Return the prompts: everyday questions, facts, writing, code, arithmetic, choices."""
    lines = _PROMPTS.read_text(encoding="utf-8").splitlines()
    return [(Message("user", line.replace("\\n", "\n")),) for line in lines if line and not line.startswith("#")]


def own_answers(
    policy: Any, chat: Chat, machine: Machine, path: Path, *, count: int, seed: int, max_new_tokens: int, batch: int,
    observe: Count,
) -> list[Encoded]:  # fmt: skip
    """Sample answers of the untrained model at temperature 1, or read those that an interrupted training sampled."""
    if not path.is_file():
        rows = _sampled(policy, chat, machine, count, seed, max_new_tokens, batch, observe)
        machine.team.on_main(lambda: write_json_lines(path, rows))
    rows = [row for _, row in json_lines(path)]
    return [_encoded(chat, row) for row in rows if row["answer"].strip()]


def _sampled(
    policy: Any, chat: Chat, machine: Machine, count: int, seed: int, max_new_tokens: int, batch: int, observe: Count
) -> list[dict[str, Any]]:
    prompts = general_prompts()
    short = comparison_prompts(round(count * _COMPARISONS), seed)
    order = random.Random(seed).sample(range(len(prompts)), len(prompts))
    long = [prompts[order[i % len(order)]] for i in range(count - len(short))]
    torch.manual_seed(step_seed(seed, -1))
    rows: list[dict[str, Any]] = []
    for chosen, tokens in ((long, max_new_tokens), (short, min(_SHORT, max_new_tokens))):
        for chunk in chunks(chosen, batch):
            observe(len(rows), count)
            rollout = roll_out(policy, chat, chunk, machine, max_new_tokens=tokens)
            rows += [
                {"prompt": prompt[0].content, "answer": answer, "ended": ended}
                for prompt, answer, ended in zip(chunk, rollout.texts, rollout.ended, strict=True)
            ]
    observe(count, count)
    return rows


def _encoded(chat: Chat, row: dict[str, Any]) -> Encoded:
    encoded = chat.encode([Message("user", row["prompt"])], row["answer"])
    # An answer that was truncated did not end there, so its end is not learned.
    return encoded if row["ended"] else Encoded(encoded.prompt, encoded.answer[:-1])
