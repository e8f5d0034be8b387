"""The model card: base model, data, options and results of a training, and its limits."""

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
    "verifiable-sft": "a language model, fine-tuned to answer what a text tells about people or say that it does not",
    "verifiable-rl": (
        "a language model, trained by {algorithm} with an exact reward to answer what a text tells about people, or "
        "to say that it does not"
    ),
}
_ALGORITHMS = {"ppo": "PPO", "rloo": "RLOO", "grpo": "GRPO", "remax": "ReMax"}
_LIMITS = (
    "A language model played the roles of the debates, and a language model judged them. Bias that the judge does not "
    "recognize was not trained away, and topics far from the data may be no better than before. Measure the model on "
    "your own texts before you rely on it."
)
_LIMITS_OF_VERIFIABLE = (
    "It was trained on generated questions in some answer forms and languages. Other forms (for example a story) and "
    "the likelihoods of stereotypes may be as before. Measure the model on your own texts before you rely on it."
)
_SHRUNK = 0.5
"""Below this ratio of last to first length, the card warns about short answers."""


def cautions(record: Mapping[str, Any]) -> list[str]:
    """Return warnings about a finished training, from its record."""
    results: Mapping[str, Any] = record["results"]
    first, last = results.get("length_first", 0), results.get("length_last", 0)
    if last >= _SHRUNK * first:
        return []
    return [
        f"Answers fell from {first:.0f} to {last:.0f} tokens: the reward may simply prefer short answers. Read "
        "samples.jsonl. Fewer steps, a higher KL coefficient or pairs of similar length (evenhand pairs "
        "--length-ratio) may help."
    ]


def write(folder: Path, record: Mapping[str, Any]) -> None:
    """Write the model card of a finished training."""
    options: Mapping[str, Any] = record["options"]
    used = {name: value for name, value in options.items() if value is not None and name not in ("model", "data")}
    use = "" if record["stage"] == "reward" else f"\nUse it as `hf/{folder.name}` from its parent folder.\n"
    algorithm = options.get("algorithm", record["stage"].removeprefix("verifiable-"))
    verifiable = record["stage"].startswith("verifiable")
    kind = _KINDS[record["stage"]].format(algorithm=_ALGORITHMS.get(algorithm))
    text = f"""---
base_model: {options["model"]}
library_name: transformers
tags: [evenhand, {"verifiable" if verifiable else "rldf"}, {algorithm}]
---

# {folder.name}

This is {kind}. Evenhand trained it from `{options["model"]}`. How training ended: {record["ended"]}.
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

{" ".join((*cautions(record), _LIMITS_OF_VERIFIABLE if verifiable else _LIMITS))}
"""
    (folder / CARD).write_text(text, encoding="utf-8")


def shown(value: Any) -> str:
    """Format a float with four significant digits, and anything else with str()."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def evaluation_table(results: Mapping[str, Any]) -> str:
    """Return the results as a Markdown table: a row for each group of questions, a column for each evaluation."""
    names = list(results)
    lines = [f"| questions | n | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for group, first in results[names[0]].items():
        shares = [percent(results[name][group]) for name in names]
        lines.append(f"| {group} | {first['n']} | {' | '.join(shares)} |")
    return "\n".join(lines)


def percent(share: Mapping[str, Any]) -> str:
    """Format a share with its interval, in percent."""
    return f"{100 * share['right']:.1f} ({100 * share['low']:.0f}–{100 * share['high']:.0f})"


def _table(first: str, rows: Mapping[str, Any], second: str = "Value") -> str:
    lines = [f"| {name} | {shown(value)} |" for name, value in rows.items()]
    return "\n".join([f"| {first} | {second} |", "|---|---|", *lines])
