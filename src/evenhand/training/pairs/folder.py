"""The folder of `evenhand pairs`: made from stored debates, with its provenance; written completely or not at all."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

import orjson

from evenhand.benchmarks.debates.records import STATEMENTS, WORST, statements_in
from evenhand.data.opinion_topics import PAIRS_FILE, PAIRS_FORMAT
from evenhand.errors import PlanError, UsageError
from evenhand.methods.base import METHODS
from evenhand.runs.stored import StoredRun, prompts_used
from evenhand.stats import mean_interval
from evenhand.training.pairs import Candidate, Debate, Pair, PairOptions, PairSet, make_pairs
from evenhand.training.pairs.leaks import LeakCheck

TRAIN, TEST = "train", "test"


def write_pairs(runs: Sequence[Path], out: Path, options: PairOptions, check: LeakCheck) -> dict[str, Any]:
    """Write the folder; return the content of its pairs.json."""
    check_folder(out)
    debates: list[Debate] = []
    made: list[dict[str, Any]] = []
    for directory in runs:
        run_debates, provenance = read_debates(directory)
        debates += run_debates
        made.append(provenance)
    chosen = make_pairs(debates, options, check)
    files = {name: _json_lines(rows) for name, rows in _rows(chosen).items()}
    about = {
        "format": PAIRS_FORMAT,
        "options": {name: getattr(options, name) for name in PairOptions.__dataclass_fields__},
        "counts": _counts(chosen),
        "threshold": chosen.threshold,
        "rounds": rounds_of(debates, chosen.threshold),
        "pairs": _about_pairs(chosen.pairs),
        "leaks": {**check.note(), "dropped": chosen.leaks},
        "held_out": _held_out(chosen),
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        "made": made,
    }
    _write_folder(out, {**files, PAIRS_FILE: orjson.dumps(about, option=orjson.OPT_INDENT_2) + b"\n"})
    return about


def check_folder(out: Path) -> None:
    """Raise UsageError if the folder is not empty; nothing is overwritten."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; name a new folder with --out.")
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(f"The folder {out} is not empty, and nothing is overwritten; name a new one with --out.")


def read_debates(directory: Path) -> tuple[list[Debate], dict[str, Any]]:
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
                    debates.append(Debate(topic, bias, sample.prompt, statements_in(outcome["notes"])))
        if not debates:
            raise PlanError(f"The run in {directory} holds no debate; make one with `evenhand debate`.")
        return debates, _provenance(run)


def rounds_of(debates: Iterable[Debate], threshold: float) -> list[dict[str, Any]]:
    """Return for each round the mean score with its interval, the share of high bias, and a histogram.

    Bin k counts the scores in (k − 1, k].
    """
    by_round: dict[int, list[tuple[float, str]]] = {}
    for debate in debates:
        for statement in debate.statements:
            if statement.score is not None:
                by_round.setdefault(statement.round, []).append((statement.score, debate.topic))
    rows: list[dict[str, Any]] = []
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


def _rows(chosen: PairSet) -> dict[str, list[dict[str, Any]]]:
    """Return the lines of every file by its name."""

    def split(debate: Debate) -> str:
        return TEST if debate.topic in chosen.test else TRAIN

    rows: dict[str, list[dict[str, Any]]] = {
        f"{kind}.{name}.jsonl": [] for kind in ("pairs", "sft") for name in (TRAIN, TEST)
    }
    for pair in chosen.pairs:
        rows[f"pairs.{split(pair.chosen.debate)}.jsonl"].append(_pair_row(pair))
    for each in chosen.low:
        rows[f"sft.{split(each.debate)}.jsonl"].append(_answer_row(each))
    return rows


def _pair_row(pair: Pair) -> dict[str, Any]:
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
    }


def _answer_row(each: Candidate) -> dict[str, Any]:
    messages = [_message("user", each.debate.question), _message("assistant", each.text)]
    return {"messages": messages, "topic": each.debate.id, "bias": each.debate.bias, "score": each.score}


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _counts(chosen: PairSet) -> dict[str, int]:
    names = (
        *("topics", "topics_with_pairs", "topics_low_only", "topics_high_only", "topics_without_margin"),
        *("debates", "statements", "unscored", "leaked", "too_short", "duplicates", "low", "high"),
        *("persona_texts", "persona_phrases", "role_still_named"),
    )
    sizes = {name.removesuffix(".jsonl").replace(".", "_"): len(rows) for name, rows in _rows(chosen).items()}
    return {name: chosen.counts.get(name, 0) for name in names} | sizes


def _about_pairs(pairs: Sequence[Pair]) -> dict[str, float]:
    """Return mean scores and lengths. A reward model could learn a difference in length instead of bias."""
    return {
        "chosen_score": fmean(pair.chosen.score for pair in pairs),
        "rejected_score": fmean(pair.rejected.score for pair in pairs),
        "margin": fmean(pair.margin for pair in pairs),
        "chosen_words": fmean(len(pair.chosen.text.split()) for pair in pairs),
        "rejected_words": fmean(len(pair.rejected.text.split()) for pair in pairs),
    }


def _held_out(chosen: PairSet) -> list[dict[str, str]]:
    """Return the held-out topics in the form that the benchmark `opinions` reads."""
    debates = [each.debate for each in (*chosen.low, *(pair.chosen for pair in chosen.pairs))]
    by_topic = {each.topic: each for each in debates if each.topic in chosen.test}
    return [{"id": each.id, "bias": each.bias, "question": each.question} for _, each in sorted(by_topic.items())]


def _json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def _write_folder(out: Path, files: Mapping[str, bytes]) -> None:
    """Write the files to a temporary folder and rename it."""
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        draft.mkdir()
        for name, content in files.items():
            (draft / name).write_bytes(content)
        draft.replace(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _provenance(run: StoredRun) -> dict[str, Any]:
    """Return what the debates depend on, without local paths."""
    run.check_files()
    plan, store = run.plan, run.store
    return {
        "run": run.directory.resolve().name,
        "identity": store.get("identity"),
        "time": store.get("created"),
        "data": store.get("benchmark"),
        "methods": [
            {"name": each.name, "options": METHODS.get(each.name).with_options(each.options).model_dump(mode="json")}
            for each in plan.methods
        ],
        "models": [{role: model.spec for role, model in models.items()} for models in plan.models],
        "fingerprints": store.get("models"),
        "seeds": plan.seeds,
        "prompts": prompts_used(store),
        "versions": store.get("versions"),
    }
