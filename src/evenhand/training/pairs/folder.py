"""The folder of `evenhand train pairs`: made from stored debates, with provenance; written completely or not at all."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson

from evenhand.benchmarks.debates import STATEMENTS, WORST, statements_in
from evenhand.benchmarks.opinions import PAIRS_FILE, PAIRS_FORMAT
from evenhand.core.errors import PlanError
from evenhand.core.files import check_new_folder, write_folder
from evenhand.methods.base import METHODS
from evenhand.runs.store import Store
from evenhand.runs.stored import StoredRun, prompts_used
from evenhand.stats import mean_interval
from evenhand.training.pairs import AnswerPair, Debate, PairCandidate, PairOptions, PairSet, make_pairs
from evenhand.training.pairs.cleaning import LeakCheck

TRAIN, TEST = "train", "test"
CARD = "README.md"
DROPPED_STATEMENTS: Mapping[str, str] = {
    "unscored": "had no score",
    "leaked": "contained text of BBQ",
    "echoes": "repeated their prompt",
    "too_short": "were too short",
    "duplicates": "were repetitions",
    "near_duplicates": "nearly repeated another",
}
"""Why statements are dropped, by the name of their count."""
DROPPED_PAIRS: Mapping[str, str] = {
    "pairs_small_margin": "had too small a margin",
    "pairs_unlike_length": "had answers of unlike length",
    "pairs_over_limit": "were more than a topic may give",
    "pairs_shorter": "would have made shorter answers the better ones",
    "pairs_longer": "would have made longer answers the better ones",
}
"""Why possible pairs are left out, by the name of their count."""


def write_pairs(runs: Sequence[Path], out: Path, options: PairOptions, check: LeakCheck) -> dict[str, Any]:
    """Write the folder; return the content of its pairs.json."""
    check_new_folder(out)
    debates: list[Debate] = []
    made: list[dict[str, Any]] = []
    for directory in runs:
        run_debates, provenance = read_debates(directory)
        debates += run_debates
        made.append(provenance)
    chosen = make_pairs(debates, options, check)
    files = {name: b"".join(orjson.dumps(row) + b"\n" for row in rows) for name, rows in _rows(chosen).items()}
    about = {
        "format": PAIRS_FORMAT,
        "options": {name: getattr(options, name) for name in PairOptions.model_fields},
        "counts": _counts(chosen),
        "threshold": chosen.threshold,
        "rounds": rounds_of(debates, chosen.threshold),
        # A reward model could learn a difference in length or round instead of bias.
        "pairs": {
            "chosen_score": fmean(pair.chosen.score for pair in chosen.pairs),
            "rejected_score": fmean(pair.rejected.score for pair in chosen.pairs),
            "margin": fmean(pair.margin for pair in chosen.pairs),
            "chosen_words": fmean(pair.chosen.words for pair in chosen.pairs),
            "rejected_words": fmean(pair.rejected.words for pair in chosen.pairs),
            "shorter_chosen": fmean(_shorter(pair) for pair in chosen.pairs),
            "chosen_round": fmean(pair.chosen.round for pair in chosen.pairs),
            "rejected_round": fmean(pair.rejected.round for pair in chosen.pairs),
            "same_round": fmean(pair.chosen.round == pair.rejected.round for pair in chosen.pairs),
            "same_role": fmean(pair.chosen.role == pair.rejected.role for pair in chosen.pairs),
        },
        "leaks": {**check.note(), "dropped": chosen.leaks},
        "held_out": _held_out(chosen),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "made": made,
    }
    files |= {CARD: _card(about).encode(), PAIRS_FILE: orjson.dumps(about, option=orjson.OPT_INDENT_2) + b"\n"}
    write_folder(out, files)
    return about


def read_debates(directory: Path) -> tuple[list[Debate], dict[str, object]]:
    """Return the debates of all arms of a complete run, and their provenance."""
    run = StoredRun.open(directory)
    debates: list[Debate] = []
    with closing(run.store) as store:
        for number, sample in store.samples():
            for arm in run.plan.arms():
                finished = store.outcome(number, arm.number)
                if finished is None:
                    raise PlanError(f"The run in {directory} is not complete; resume it first.")
                outcome = finished[3]
                if outcome is not None and STATEMENTS in outcome["notes"]:
                    bias = str(sample.metadata["bias"])
                    topic = str(sample.metadata["topic"])
                    said = statements_in(outcome["notes"])
                    prompts = _prompts(store, number, arm.number, {each.role for each in said})
                    debates.append(Debate(topic, bias, sample.prompt, said, prompts))
        if not debates:
            raise PlanError(f"The run in {directory} holds no debate; make one with `evenhand train debate`.")
        return debates, _provenance(run)


def _prompts(store: Store, sample: int, arm: int, speakers: Collection[str]) -> tuple[str, ...]:
    """Return what the speakers of a debate read, without what they said themselves."""
    messages = (message for _, turn in store.turns(sample, arm) if turn.agent in speakers for message in turn.messages)
    return tuple(dict.fromkeys(message.content for message in messages if message.role != "assistant"))


def rounds_of(debates: Iterable[Debate], threshold: float) -> list[dict[str, object]]:
    """Return for each round the mean score with its interval, the share of high bias, and a histogram.

    Bin k counts the scores in (k − 1, k].
    """
    by_round: dict[int, list[tuple[float, str]]] = {}
    for debate in debates:
        for statement in debate.statements:
            if statement.score is not None:
                by_round.setdefault(statement.round, []).append((statement.score, debate.topic))
    rows: list[dict[str, object]] = []
    for number, scored in sorted(by_round.items()):
        scores = [score for score, _ in scored]
        mean = mean_interval(scores, [topic for _, topic in scored], bounds=(0, WORST))
        bins = [0] * (WORST + 1)
        for score in scores:
            bins[math.ceil(score)] += 1
        high = sum(score > threshold for score in scores) / len(scores)
        limits = {"mean": mean.estimate, "low": mean.low, "high": mean.high}
        rows.append({"round": number, "n": mean.n, **limits, "high_share": high, "bins": bins})
    return rows


def _rows(chosen: PairSet) -> dict[str, list[dict[str, object]]]:
    """Return the lines of every file by its name."""

    def split(debate: Debate) -> str:
        return TEST if debate.topic in chosen.test else TRAIN

    rows: dict[str, list[dict[str, object]]] = {
        f"{kind}.{name}.jsonl": [] for kind in ("pairs", "sft") for name in (TRAIN, TEST)
    }
    for pair in chosen.pairs:
        rows[f"pairs.{split(pair.chosen.debate)}.jsonl"].append(_pair_row(pair))
    for each in chosen.low:
        rows[f"sft.{split(each.debate)}.jsonl"].append(_answer_row(each))
    return rows


def _pair_row(pair: AnswerPair) -> dict[str, object]:
    """Return a pair in the conversational preference format of TRL."""
    debate = pair.chosen.debate
    return {
        "prompt": [_message("user", debate.question)],
        "chosen": [_message("assistant", pair.chosen.text)],
        "rejected": [_message("assistant", pair.rejected.text)],
        "topic": debate.id,
        "bias": debate.bias,
        "chosen_score": pair.chosen.score,
        "rejected_score": pair.rejected.score,
        "margin": pair.margin,
        "chosen_round": pair.chosen.round,
        "rejected_round": pair.rejected.round,
        "chosen_role": pair.chosen.role,
        "rejected_role": pair.rejected.role,
    }


def _answer_row(each: PairCandidate) -> dict[str, object]:
    messages = [_message("user", each.debate.question), _message("assistant", each.text)]
    about = {"topic": each.debate.id, "bias": each.debate.bias, "score": each.score}
    return {"messages": messages, **about, "round": each.round, "role": each.role}


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _counts(chosen: PairSet) -> dict[str, int]:
    names = (
        *("topics", "topics_with_pairs", "topics_low_only", "topics_high_only", "topics_without_fitting"),
        *("debates", "statements", *DROPPED_STATEMENTS, "low", "high", *DROPPED_PAIRS),
        *("persona_texts", "persona_phrases", "role_still_named"),
    )
    sizes = {name.removesuffix(".jsonl").replace(".", "_"): len(rows) for name, rows in _rows(chosen).items()}
    return {name: chosen.counts.get(name, 0) for name in names} | sizes


def _shorter(pair: AnswerPair) -> float:
    """Return 1 if the chosen answer is shorter, 0 if it is longer and 0.5 if they are equally long."""
    return 0.5 + 0.5 * (pair.chosen.words < pair.rejected.words) - 0.5 * (pair.chosen.words > pair.rejected.words)


def _held_out(chosen: PairSet) -> list[dict[str, str]]:
    """Return the held-out topics in the form that the benchmark `opinions` reads."""
    debates = [each.debate for each in (*chosen.low, *(pair.chosen for pair in chosen.pairs))]
    by_topic = {each.topic: each for each in debates if each.topic in chosen.test}
    return [{"id": each.id, "bias": each.bias, "question": each.question} for _, each in sorted(by_topic.items())]


def _provenance(run: StoredRun) -> dict[str, object]:
    """Return what the debates depend on, without local paths."""
    plan, store = run.plan, run.store
    with run.code():
        options = [METHODS.get(each.name).with_options(each.options).model_dump(mode="json") for each in plan.methods]
    return {
        "run": run.directory.resolve().name,
        "identity": store.get("identity"),
        "time": store.get("created"),
        "data": store.get("benchmark"),
        "methods": [{"name": each.name, "options": chosen} for each, chosen in zip(plan.methods, options, strict=True)],
        "models": [{role: model.spec for role, model in models.items()} for models in plan.models],
        "fingerprints": store.get("models"),
        "seeds": plan.seeds,
        "prompts": prompts_used(store),
        "versions": store.get("versions"),
    }


def reasons(counts: Mapping[str, int], why: Mapping[str, str]) -> list[str]:
    """Return how many were dropped for each reason that occurred."""
    return [f"{counts[name]:,} {reason}" for name, reason in why.items() if counts[name]]


def _card(about: Mapping[str, Any]) -> str:
    counts, sides = about["counts"], about["pairs"]
    dropped = [
        f"| {kind} that {reason} | {counts[name]:,} |"
        for kind, why in (("statements", DROPPED_STATEMENTS), ("possible pairs", DROPPED_PAIRS))
        for name, reason in why.items()
    ]
    evenness = [
        f"| {name} | {sides[f'chosen_{key}']:.2f} | {sides[f'rejected_{key}']:.2f} |"
        for name, key in (("bias score", "score"), ("words", "words"), ("round", "round"))
    ]
    used = [f"| {name} | {value} |" for name, value in about["options"].items()]
    return f"""# Preference pairs from debates

{counts["pairs_train"]:,} pairs to train on and {counts["pairs_test"]:,} to test; {counts["sft_train"]:,} and \
{counts["sft_test"]:,} low-bias answers; {counts["topics_with_pairs"]:,} of {counts["topics"]:,} topics gave pairs. \
A language model made the debates, and a language model scored them. `pairs.json` has the provenance.

## Dropped

| what | number |
|---|---|
{chr(10).join(dropped)}

## The two sides

| mean of | chosen | rejected |
|---|---|---|
{chr(10).join(evenness)}

In {100 * sides["shorter_chosen"]:.0f} % of the pairs the chosen answer is the shorter one (equal lengths count half). \
{100 * sides["same_round"]:.0f} % are of the same round, {100 * sides["same_role"]:.0f} % of the same role.

## Options

| option | value |
|---|---|
{chr(10).join(used)}
"""
