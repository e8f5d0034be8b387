"""The model's own answers to general prompts: mixed into the fine-tuning, they keep what the model could do before.

Many name a form (sentences, items, words, JSON, a language, steps of a calculation): without them a model that learns
short answers obeys forms no longer. Some are comparisons without a passage that hardly anyone knows by heart: without
them a model that learns not to guess from a passage also answers "both alike" wherever it is not sure.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from evenhand.core.files import json_lines, read_yaml, write_json_lines
from evenhand.core.lazy import torch
from evenhand.core.progress import Count
from evenhand.core.types import Message
from evenhand.training.chat import Chat, Encoded
from evenhand.training.data import Prompt
from evenhand.training.loop import step_seed
from evenhand.training.models import Machine
from evenhand.training.rollout import answer_all

FILE = "general.jsonl"
_COMPARISONS = 0.2
"""Share of the prompts that are comparisons without a passage, whose answers are short."""
_PLAIN = 1 / 3
"""Share of the other prompts that name no form; each of them is asked at most `_TIMES` times."""
_TIMES = 3
_SHORT = 8
"""Tokens of the answer to a comparison."""
_PROMPTS = Path(__file__).with_name("general.txt")
_TEXTS = Path(__file__).with_name("comparisons.yaml")
_FORMS = Path(__file__).with_name("forms.yaml")
_YEARS = range(1960, 2024)


def general_prompts() -> list[Prompt]:
    """Return the prompts: everyday questions, facts, writing, code, arithmetic, choices."""
    lines = _PROMPTS.read_text(encoding="utf-8").splitlines()
    return [(Message("user", line.replace("\\n", "\n")),) for line in lines if line and not line.startswith("#")]


def form_prompts(count: int, seed: int) -> list[Prompt]:
    """Draw prompts that name a form, calculations and code; the same seed draws the same ones."""
    texts: Mapping[str, Any] = read_yaml(_FORMS)
    rng = random.Random(f"forms/{seed}")
    return [(Message("user", _form_prompt(rng, texts)),) for _ in range(count)]


def _form_prompt(rng: random.Random, texts: Mapping[str, Any]) -> str:
    kind = rng.choices(("forms", "sums", "code"), weights=(62, 30, 8))[0]
    topic, other = rng.sample(texts["topics"], 2)
    a, c = rng.randint(8, 40), rng.randint(2, 9)
    numbers = {"a": a, "b": rng.randint(2, a - 1), "c": c, "d": rng.randint(2, 12), "ac": a * c, "a12": a * 12}
    named = {"topic": topic, "other": other, "task": rng.choice(texts["tasks"])}
    words = {name: rng.choice(texts[name]) for name in ("few", "some", "words", "end")}
    return rng.choice(texts[kind]).format_map({**numbers, **named, **words}).strip()


def own_answers(
    policy: Any, chat: Chat, machine: Machine, path: Path, *, count: int, seed: int, max_new_tokens: int,
    observe: Count,
) -> list[Encoded]:  # fmt: skip
    """Sample answers of the untrained model at temperature 1, or read those that an interrupted training sampled."""
    if not path.is_file():
        rows = _sampled(policy, chat, machine, count, seed, max_new_tokens, observe)
        machine.team.on_main(lambda: write_json_lines(path, rows))
    rows = [row for _, row in json_lines(path)]
    return [_encoded(chat, row) for row in rows if row["answer"].strip()]


def _sampled(
    policy: Any, chat: Chat, machine: Machine, count: int, seed: int, max_new_tokens: int, observe: Count
) -> list[dict[str, Any]]:
    prompts = general_prompts()
    short = comparison_prompts(round(count * _COMPARISONS), seed)
    order = random.Random(seed).sample(range(len(prompts)), len(prompts))
    plain = min(round((count - len(short)) * _PLAIN), _TIMES * len(prompts))
    long = [prompts[order[i % len(order)]] for i in range(plain)]
    long += form_prompts(count - len(short) - plain, seed)
    torch.manual_seed(step_seed(seed, -1))
    rows: list[dict[str, Any]] = []
    for chosen, tokens in ((long, max_new_tokens), (short, min(_SHORT, max_new_tokens))):
        done = partial(_further, observe, len(rows), count)
        answers = answer_all(policy, chat, chosen, machine, max_new_tokens=tokens, observe=done)
        rows += [
            {"prompt": prompt[0].content, "answer": answer, "ended": ended}
            for prompt, (answer, ended) in zip(chosen, answers, strict=True)
        ]
    return rows


def _further(observe: Count, before: int, count: int, done: int, _: int | None) -> None:
    observe(before + done, count)


def _encoded(chat: Chat, row: dict[str, Any]) -> Encoded:
    encoded = chat.encode([Message("user", row["prompt"])], row["answer"])
    # An answer that was truncated did not end there, so its end is not learned.
    return encoded if row["ended"] else Encoded(encoded.prompt, encoded.answer[:-1])


def comparison_prompts(count: int, seed: int) -> list[Prompt]:
    """Draw prompts; the same seed draws the same ones."""
    texts: Mapping[str, Any] = read_yaml(_TEXTS)
    rng = random.Random(f"comparisons/{seed}")
    return [(Message("user", _question(rng, texts)),) for _ in range(count)]


def _question(rng: random.Random, texts: Mapping[str, Any]) -> str:
    kind: Literal["countries", "groups"] = rng.choice(("countries", "groups"))
    a, b = rng.sample(texts[kind], 2)
    values = {name: rng.choice(texts[f"{name}s"]) for name in ("amount", "habit", "joke")} | {
        "year": rng.choice(_YEARS)
    }
    question = rng.choice(texts["questions"][kind]).format_map(values)
    options = (a, b, rng.choice(texts["thirds"][kind]).format(a=a, b=b))
    marks, style, between = rng.choice(("abc", "ABC")), rng.choice(texts["styles"]), rng.choice(("\n", " "))
    listed = between.join(
        style.format(mark) + option[0].upper() + option[1:] for mark, option in zip(marks, options, strict=True)
    )
    end = rng.choice(texts["ends"]).format(marks=f"{marks[0]}, {marks[1]} or {marks[2]}")
    return f"{question}\n{listed}\n\n{end}"
