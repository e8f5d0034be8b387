"""The model card: what a trained model was made from, with what, and how well that went."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

CARD = "README.md"
_KINDS = {
    "sft": "a language model, fine-tuned on answers with a low bias score",
    "reward": "a reward model: a sequence classifier with one output, higher for the less biased answer",
    "ppo": "a language model, trained by {algorithm} against a reward model that prefers the less biased answer",
    "dpo": "a language model, trained by DPO to prefer the less biased answer of pairs",
}
_ALGORITHMS = {"ppo": "PPO", "rloo": "RLOO", "grpo": "GRPO", "remax": "ReMax"}
_LIMITS = (
    "It was trained on debates between roles that a language model played and a language model judged. What that "
    "judge does not see as bias was not trained away, and topics far from the data may be no better than before. "
    "Measure it on your own texts before you rely on it."
)


_SHRUNK = 0.5
"""The share of their length below which answers are no longer what they were."""


def cautions(record: Mapping[str, Any]) -> list[str]:
    """What to look at before a model is used, by its record."""
    found: Mapping[str, Any] = record["results"]
    first, last = found.get("length_first", 0), found.get("length_last", 0)
    if last >= _SHRUNK * first:
        return []
    return [
        f"Answers fell from {first:.0f} to {last:.0f} tokens: the reward may be paid for shortness alone. Read "
        "samples.jsonl; fewer steps, a higher beta or pairs of like lengths (evenhand pairs --length-ratio) may help."
    ]


def write(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the card of a finished training from its record."""
    options: Mapping[str, Any] = record["options"]
    used = {name: value for name, value in options.items() if value is not None and name not in ("model", "data")}
    use = "" if record["stage"] == "reward" else f"\nUse it as `hf/{folder.name}` from the folder that it lies in.\n"
    algorithm = options.get("algorithm", record["stage"])
    kind = _KINDS[record["stage"]].format(algorithm=_ALGORITHMS.get(algorithm))
    text = f"""---
base_model: {options["model"]}
library_name: transformers
tags: [evenhand, rldf, {algorithm}]
---

# {folder.name}

This is {kind}. Made by Evenhand from `{options["model"]}`; training ended: {record["ended"]}.
{use}
## Results

{_table("Measure", record["results"])}

## Data

{_table("File", record["data"], "sha256")}

## Options

{_table("Option", used)}

## Made with

{_table("Package", record["versions"], "Version")}

## Limits

{" ".join((*cautions(record), _LIMITS))}
"""
    (folder / CARD).write_text(text, encoding="utf-8")


def shown(value: Any) -> str:
    """A number with four digits that matter; anything else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(first: str, rows: Mapping[str, Any], second: str = "Value") -> str:
    lines = [f"| {name} | {shown(value)} |" for name, value in rows.items()]
    return "\n".join([f"| {first} | {second} |", "|---|---|", *lines])
