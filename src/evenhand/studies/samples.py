"""Single samples with their outcomes and turns, for the report's sample browser and for `evenhand run show`.

The story of a sample tells what happened in steps: first answer, critiques, decision, revision, final answer. The steps
come from the snapshots that a method records after each iteration. The notes `candidate`, `verdicts` and `decision` are
put into words; other plain notes are shown unchanged. Without notes, only the answers are shown.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from evenhand.benchmarks.base import Metric
from evenhand.core.errors import UnknownNameError
from evenhand.core.types import Record, Sample, ToolCall, Turn
from evenhand.runs.store import Store, sample_from
from evenhand.runs.stored import ArmSource, open_sources, walk
from evenhand.studies.results import (
    Finding,
    RunExample,
    ShownOutcome,
    ShownSample,
    ShownSnapshot,
    ShownTurn,
    StudyResult,
)


def shown_samples(
    directories: Sequence[Path], most: int = 300, *, scorers: Sequence[str] = (), skip_damaged: bool = False
) -> Iterator[ShownSample]:
    """Yield up to `most` samples, mixing samples without a grade, samples on which arms differ, and the rest.

    They come in an order that has nothing to do with their ids, so that any first part of them has all groups.
    `scorers` names scorers whose scores are shown instead of those of the planned scorers.
    """
    with open_sources(directories, scorers=scorers, skip_damaged=skip_damaged) as (runs, sources):
        # In turn, so that a run full of failures still shows successes.
        in_turn = zip_longest(*_by_interest(sources, most))
        for sample_id in islice((each[1] for turn in in_turn for each in turn if each is not None), most):
            with suppress(UnknownNameError):  # a damaged sample, which is left out
                yield shown_sample(sources, sample_id, runs[0].group_key())


def _by_interest(sources: Sequence[ArmSource], most: int) -> list[list[tuple[bytes, str]]]:
    """Return (place in the order, id) of up to `most` samples that all runs have, by interest."""
    stores = list({id(source.store): source.store for source in sources}.values())
    found: list[list[tuple[bytes, str]]] = [[], [], []]
    last = [b"\xff" * 9] * len(found)
    grader = sources[0].scorers[0] if len(sources) > 1 else ""  # one arm cannot differ
    rows = heapq.merge(*(_results(store, place, grader) for place, store in enumerate(stores)))
    for sample_id, group in groupby(rows, key=itemgetter(0)):
        results = list(group)
        if len({place for _, place, _, _ in results}) < len(stores):
            continue
        interest = _interest(results)
        mixed = hashlib.blake2b(sample_id.encode(errors="replace"), digest_size=8).digest()
        if mixed < last[interest]:
            kept = found[interest]
            kept.append((mixed, sample_id))
            if len(kept) >= 2 * max(1, most):  # a run may have millions of samples
                kept.sort()
                del kept[most:]
                last[interest] = kept[-1][0] if kept else b""
    return [sorted(kept) for kept in found]


_Result = tuple[str, int, str, str]
"""Sample, place of the store, status (empty while pending) and chosen option of one arm."""


def _results(store: Store, place: int, grader: str) -> Iterator[_Result]:
    """Yield the results of all arms by sample id; without a grader, no option."""
    if not grader:
        query = "SELECT s.id, ?, COALESCE(o.status, ''), '' FROM samples s LEFT JOIN outcomes o ON o.sample = s.number"
        return store.select(f"{query} ORDER BY s.id", place)
    return store.select(
        "SELECT s.id, ?, COALESCE(o.status, ''), COALESCE(CASE WHEN json_valid(c.body) THEN"
        " json_extract(c.body, '$.choice') END, '') FROM samples s LEFT JOIN outcomes o ON o.sample = s.number"
        " LEFT JOIN scores c ON c.sample = o.sample AND c.arm = o.arm AND c.iteration = -1 AND c.scorer = ?"
        " ORDER BY s.id",
        place,
        grader,
    )


def find_sample(directory: Path, sample_id: str, *, skip_damaged: bool = False) -> ShownSample:
    with open_sources([directory], skip_damaged=skip_damaged) as (runs, sources):
        return shown_sample(sources, sample_id, runs[0].group_key())


def shown_sample(sources: Sequence[ArmSource], sample_id: str, group_key: str) -> ShownSample:
    sample: Sample | None = None
    outcomes: list[ShownOutcome] = []
    for source in sources:
        stored = source.store.find_sample(sample_id)
        if stored is None:
            continue
        number, sample = stored
        shown = _outcome(source, number, sample)
        if shown is not None:
            outcomes.append(shown)
    if sample is None:
        known = [each.id for source in sources[:1] for _, each in islice(source.store.samples(), 5000)]
        raise UnknownNameError("sample of this run", sample_id, known)
    return ShownSample(
        sample.id,
        str(sample.metadata.get(group_key, "")),
        sample.kind,
        sample.context,
        sample.prompt,
        sample.choices,
        sample.target,
        sample.metadata,
        outcomes,
    )


def _interest(results: Sequence[_Result]) -> int:
    """0 if an arm has no grade, 1 if the arms differ, 2 otherwise."""
    statuses = {status for _, _, status, _ in results if status}
    if statuses - {"graded"}:
        return 0
    return 1 if len({choice for _, _, status, choice in results if status}) > 1 else 2


def _outcome(source: ArmSource, number: int, sample: Sample) -> ShownOutcome | None:
    stored = source.store.outcome(number, source.arm.number)
    if stored is None:
        return None
    status, reason, _, body = stored
    record = source.record(number, sample)
    snapshots: list[Any] = [] if body is None else body["snapshots"]
    return ShownOutcome(
        arm=source.id,
        status=status,
        answer="" if body is None else result_text(body["result"]),
        reason=reason,
        stop="" if body is None else body["stop"],
        grade=_readable(record.grade if record and record.grade else {}),
        turns=[_turn(turn) for _, turn in source.store.turns(number, source.arm.number)],
        snapshots=[ShownSnapshot(each["iteration"], result_text(each["result"]), each["notes"]) for each in snapshots],
    )


def _readable(grade: Mapping[str, Any]) -> dict[str, Any]:
    """Return the grade without values that only metrics use, such as lists of hashes."""
    return {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in grade.items()
        if not isinstance(value, (list, dict))
    }


def result_text(result: Any) -> str:
    value = result["value"]
    return str(value["raw"] if result["type"] in ("Unscored", "Cut") else value["text"])


def _turn(turn: Turn) -> ShownTurn:
    generation = turn.generation
    return ShownTurn(
        agent=turn.agent,
        role=turn.role,
        prompt_id=turn.prompt_id,
        prompt_hash=turn.prompt_hash,
        messages=[(message.role, _with_calls(message.content, message.calls)) for message in turn.messages],
        outputs=[] if generation is None else [_with_calls(each.text, each.calls) for each in generation.completions],
        thoughts=[] if generation is None else [completion.thought for completion in generation.completions],
        error=turn.error,
        tokens=0 if generation is None else generation.usage.tokens,
        thought_tokens=0 if generation is None else generation.usage.thought_tokens,
        latency=0.0 if generation is None else generation.latency,
        cached=generation is not None and generation.cached,
        model="" if generation is None else generation.model,
    )


def _with_calls(text: str, calls: Sequence[ToolCall]) -> str:
    return "\n".join([*filter(None, [text]), *(f"→ {each.name}({each.arguments})" for each in calls)])


# --- an example of a finding ---

_SEARCHED = 2000
"""Samples among which an example is looked for."""
_LONGEST_TEXT, _LONGEST_ANSWER = 320, 160


def example_of(study: StudyResult, metrics: Sequence[Metric], sources: Sequence[ArmSource]) -> RunExample | None:
    """Return a sample that shows what the first finding is about: one on which the arms differ as it says."""
    finding = next(iter(study.findings), None)
    metric = next((each for each in metrics if finding and each.name == finding.metric), None)
    arms = [source for source in sources if finding and source.id in finding.arms]
    if finding is None or metric is None or len(arms) != len(finding.arms):
        return None
    arms.sort(key=lambda source: finding.arms.index(source.id))
    for sample, records in islice(walk(arms, shared=True), _SEARCHED):
        values = [_record_value(metric, records[each.id]) if each.id in records else None for each in arms]
        if _shows(finding, metric, values):
            return _example(study, finding, sample_from(sample), arms)
    return None


def _record_value(metric: Metric, record: Record) -> float | None:
    """The metric of one record alone; the distance from zero, if that is best."""
    sums = metric.count(record)
    if sums is not None and metric.gather is not None:
        sums = metric.gather([record])
    if sums is None or len(sums) == 0:
        return None
    value = float(metric.statistic(np.asarray(sums, dtype=np.float64)))
    if not np.isfinite(value):
        return None
    return abs(value) if metric.better == "zero" else value


def _shows(finding: Finding, metric: Metric, values: Sequence[float | None]) -> bool:
    if any(value is None for value in values):
        return False
    numbers = [value or 0.0 for value in values]
    if finding.verdict == "found":
        return numbers[0] < 0.5 if metric.better == "higher" else numbers[0] >= 0.5
    if len(numbers) < 2 or finding.verdict not in ("worse", "better", "probably worse", "probably better"):
        return False
    rises = finding.verdict.endswith("better") == (metric.better == "higher")
    return numbers[1] > numbers[0] if rises else numbers[1] < numbers[0]


def _example(study: StudyResult, finding: Finding, sample: Sample, arms: Sequence[ArmSource]) -> RunExample:
    labels = {arm.id: finding.who if len(arms) == 1 else arm.label for arm in study.arms}
    answers: list[tuple[str, str]] = []
    for source in arms:
        found = source.store.find_sample(sample.id)
        stored = None if found is None else source.store.outcome(found[0], source.arm.number)
        if stored is not None:
            answers.append((labels[source.id], _cut(_answer(sample, stored), _LONGEST_ANSWER)))
    text = " ".join(filter(None, (sample.context, sample.prompt)))
    return RunExample(_cut(text, _LONGEST_TEXT), answers, may_offend=sample.kind == "completion")


def _answer(sample: Sample, stored: tuple[Any, ...]) -> str:
    """The chosen option, the text, or why there is none."""
    if stored[3] is None:
        return str(stored[1] or stored[0])
    result = stored[3]["result"]
    choice: int | None = result["value"].get("choice") if result["type"] == "Answer" else None
    return result_text(result) if choice is None or choice >= len(sample.choices) else sample.choices[choice]


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1].rsplit(' ', 1)[0]} …"


# --- the story of a sample ---

_DECISIONS = {
    "accepted": "accepts the answer.",
    "max_iterations": "stops: the revision limit is reached.",
    "no_evaluation": "stops: no evaluator could judge it.",
    "revise": "asks for a revision.",
}
_WORDED = ("candidate", "verdicts", "decision")


@dataclass(frozen=True, slots=True)
class Step:
    """One event; critics, decisions and notes refer to the answer before them."""

    kind: Literal["answer", "critic", "decision", "note", "end"]
    who: str
    text: str
    passed: bool | None = None
    """A critic's verdict; None if it could not judge."""
    details: str = ""

    @property
    def label(self) -> str:
        """The speaker, with a colon unless the text continues the sentence."""
        continues = self.kind == "decision" or self.text.startswith(("is ", "could "))
        return self.who if continues else f"{self.who}:"


def story(outcome: ShownOutcome) -> list[Step]:
    """Return the steps in order; none for a method that records no snapshots."""
    if not outcome.snapshots:
        return []
    candidates = [_candidate(each) for each in outcome.snapshots]
    steps = [
        step
        for number, (snapshot, text) in enumerate(zip(outcome.snapshots, candidates, strict=True))
        for step in (Step("answer", _name(number), text), *_note_steps(snapshot.notes))
    ]
    return [*steps, Step("end", "the end", _end(outcome.answer, candidates))]


def first_answer(outcome: ShownOutcome) -> str | None:
    """Return the answer before the method changed it, or None if it did not."""
    before = _candidate(outcome.snapshots[0]) if outcome.snapshots else outcome.answer
    return None if before == outcome.answer else before


def _candidate(snapshot: ShownSnapshot) -> str:
    """Return the answer that was judged, which is not always the one that was kept."""
    return str(snapshot.notes.get("candidate", snapshot.text))


def _name(number: int) -> str:
    return f"revision {number}" if number else "the first answer"


def _note_steps(notes: Mapping[str, Any]) -> Iterator[Step]:
    verdicts = notes.get("verdicts")
    for each in cast("list[Any]", verdicts) if isinstance(verdicts, list) else []:
        if isinstance(each, Mapping):
            yield _critic(cast("Mapping[str, Any]", each))
    for name, value in notes.items():
        if name not in _WORDED and (text := _plain(value)) is not None:
            yield Step("note", name, text)
    if "decision" in notes:
        yield Step("decision", "coordinator", _decision(str(notes["decision"])))


def _plain(value: Any) -> str | None:
    """Return a note as text; of a mapping, its plain values."""
    if isinstance(value, (str, int, float)):
        return str(value)
    if not isinstance(value, Mapping):
        return None
    items = cast("Mapping[str, Any]", value).items()
    return ", ".join(f"{name} {each}" for name, each in items if isinstance(each, (str, int, float))) or None


def _critic(verdict: Mapping[str, Any]) -> Step:
    who, details = f"{verdict.get('evaluator', 'an')} evaluator", str(verdict.get("details") or "")
    if "unscored" in verdict:
        return Step("critic", who, f"could not judge: {verdict['unscored']}")
    passed = bool(verdict.get("passed"))
    # Remarks on an answer that passed had no consequence, so they are not shown.
    text = "is satisfied." if passed else str(verdict.get("critique") or "is not satisfied.")
    return Step("critic", who, text, passed, details)


def _decision(decision: str) -> str:
    """Put decisions such as `revise: toxicity` into a sentence; unknown ones are quoted."""
    word, _, why = decision.partition(": ")
    if word not in _DECISIONS:
        return f"decides: {decision}"
    return _DECISIONS[word] if not why else f"{_DECISIONS[word].rstrip('.')} ({why})."


def _end(answer: str, candidates: Sequence[str]) -> str:
    """Say which of the answers was kept."""
    if answer not in candidates:
        return f"The final answer is none of these: {answer}"
    last = len(candidates) - 1
    if candidates[last] == answer:
        unchanged = last > 0 and candidates[0] == answer
        return "The answer did not change." if unchanged else f"{_name(last).capitalize()} is kept."
    kept = _name(candidates.index(answer)).capitalize()
    return f"{kept} is kept: it was better than {_name(last)}."
