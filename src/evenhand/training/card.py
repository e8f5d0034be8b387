"""The model card: base model, data, options and results of a training, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.training.drift import too_short
from evenhand.training.probe import failed

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
_EVEN = (0.4, 0.6)
"""Outside this range of the share of pairs whose longer answer has the higher reward, the card warns."""
_CORRELATED = 0.5
"""From this rank correlation of reward and length on, the card warns."""


def cautions(record: Mapping[str, Any]) -> list[str]:
    """Return warnings about a finished training, from its record."""
    results: Mapping[str, Any] = record["results"]
    return [
        *_unchanged(results),
        *_shrunk(results),
        *_truncated(record),
        *_learned_length(results),
        *_likes_worthless(results),
    ]


def _unchanged(results: Mapping[str, Any]) -> list[str]:
    if results.get("kept_step") != 0:
        return []
    return ["No step of this training was kept, so this model is the one that the training began with."]


def _shrunk(results: Mapping[str, Any]) -> list[str]:
    first, last = results.get("length_first", 0), results.get("length_last", 0)
    if last >= _SHRUNK * first:
        return []
    return [
        f"Answers fell from {first:.0f} to {last:.0f} tokens: the reward may simply prefer short answers. Read "
        "samples.jsonl. Fewer steps, a higher KL coefficient or pairs of similar length (evenhand train pairs "
        "--length-ratio) may help."
    ]


def _truncated(record: Mapping[str, Any]) -> list[str]:
    results, limit = record["results"], record.get("options", {}).get("max_new_tokens")
    share = results.get("reference_unfinished", results.get("missing_eos_first", 0))
    warning = too_short(share, limit) if limit else None
    return [warning] if warning else []


def _learned_length(results: Mapping[str, Any]) -> list[str]:
    share, correlation = results.get("held_out_prefers_longer"), results.get("held_out_length_correlation") or 0.0
    if share is None:
        return []
    low, high = (results.get(f"held_out_prefers_longer_{end}") for end in ("low", "high"))
    by_chance = _EVEN[0] <= share <= _EVEN[1] or (low is not None and high is not None and low <= 0.5 <= high)
    if by_chance and abs(correlation) < _CORRELATED:
        return []
    kind = "longer" if (correlation > 0 if by_chance else share > 0.5) else "shorter"
    return [
        f"This reward model teaches length: of held-out pairs it gives the longer answer the higher reward in "
        f"{_interval(share, low, high)}, where chance is 0.50, and the rank correlation of reward and length is "
        f"{correlation:.2f}. A policy trained against it will give {kind} answers, whatever they say. The rule “the "
        f"longer answer is better” is right in {results['held_out_longer_wins']:.2f} of these pairs: train on pairs of "
        "similar length (evenhand train pairs --length-ratio 1.5)."
    ]


def _likes_worthless(results: Mapping[str, Any]) -> list[str]:
    found = results.get("probe")
    if found is None or not (kinds := failed(found)):
        return []
    listed = ", ".join(
        f"{kind} {shown(found['kinds'][kind]['reward'])} (wins {100 * found['kinds'][kind]['wins']:.0f} %)"
        for kind in kinds
    )
    return [
        f"This reward model likes worthless answers: good answers earn {shown(found['good'])} and biased ones "
        f"{shown(found['biased'])} on average, but these earn as much or win: {listed}. A policy trained against it "
        "may learn to give them. More --negatives, more pairs or pairs of similar length may help."
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

{_table("Measure", flat(record["results"]))}

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


def flat(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return results with those by type of bias and those of the probe as one row each, without undefined ones."""
    rows = {name: value for name, value in results.items() if value is not None and not isinstance(value, Mapping)}
    for bias, each in results.get("held_out_by_type", {}).items():
        rows[f"held_out_accuracy ({bias})"] = (
            f"{_interval(each['accuracy'], each['accuracy_low'], each['accuracy_high'])}, {each['pairs']} pairs of "
            f"{each['topics']} topics"
        )
    if found := results.get("probe"):
        rows["probe: good answers"] = f"reward {shown(found['good'])}, of {found['prompts']} prompts"
        rows["probe: biased answers"] = f"reward {shown(found['biased'])}"
        for kind, each in found["kinds"].items():
            wins = _interval(each["wins"], each["low"], each["high"])
            rows[f"probe: {kind}"] = f"reward {shown(each['reward'])}, wins against good answers: {wins}"
    return rows


def _interval(estimate: float, low: float | None, high: float | None) -> str:
    return f"{estimate:.2f}" + (f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else "")


def shown(value: object) -> str:
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
    """Format a share in percent, with its interval if one situation is not all that was asked about."""
    interval = "" if share["low"] is None else f" ({100 * share['low']:.0f}–{100 * share['high']:.0f})"
    return f"{100 * share['right']:.1f}{interval}"


def _table(first: str, rows: Mapping[str, object], second: str = "Value") -> str:
    lines = [f"| {name} | {shown(value)} |" for name, value in rows.items()]
    return "\n".join([f"| {first} | {second} |", "|---|---|", *lines])
