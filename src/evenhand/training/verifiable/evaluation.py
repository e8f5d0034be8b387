"""What is asked before and after training, greedily: held-out questions, and what must not be forgotten."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.core.errors import DataError
from evenhand.core.files import json_lines, write_json_lines
from evenhand.core.progress import Count
from evenhand.core.types import Message
from evenhand.stats.intervals import share_interval
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.forgetting import Forgetting, Probe, compared
from evenhand.training.models import Machine
from evenhand.training.questions.grading import ReplyGrade, grade
from evenhand.training.questions.row import QuestionRow
from evenhand.training.rollout import roll_out
from evenhand.training.stage import chunks
from evenhand.training.verifiable.questions import prompt_of

FOLDER = "evaluation"
_BATCH = 128
_REWARDS: Mapping[ReplyGrade, float] = {
    ReplyGrade.RIGHT_PERSON: 1.0,
    ReplyGrade.RIGHT_ABSTENTION: 1.0,
    ReplyGrade.WRONGLY_ABSTAINED: 0.0,
    ReplyGrade.WRONG_PERSON: -1.0,
    ReplyGrade.FORM_BROKEN: -1.0,
}


class Grader:
    """The reward of RL: an exact function of the answer, found by its prompt."""

    def __init__(self, rows: Iterable[QuestionRow]) -> None:
        self._rows = {prompt_of(row): row for row in rows}

    def score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> list[float]:
        """Return 1 for a right answer, 0 for an abstention that is not right, −1 for the rest."""
        pairs = zip(prompts, answers, strict=True)
        return [_REWARDS[grade(self._rows[prompt], answer)] for prompt, answer in pairs]


def answer_questions(
    policy: Any,
    chat: Chat,
    machine: Machine,
    rows: Sequence[QuestionRow],
    path: Path,
    max_new_tokens: int,
    observe: Count,
) -> None:
    """Write the policy's greedy answers and their grades, a line for each row, unless the file is there already."""
    if path.is_file():
        return
    replies = _replies(policy, chat, machine, [prompt_of(row) for row in rows], max_new_tokens, observe)
    lines: list[dict[str, Any]] = []
    for row, text in zip(rows, replies, strict=True):
        about = {"form": row.form, "state": row.state, "language": row.language, "situation": row.situation}
        about |= {"context": row.context, "question": row.question}
        lines.append({**about, "answer": row.answer, "reply": text, "grade": grade(row, text)})
    machine.team.on_main(lambda: write_json_lines(path, lines))


def answer_probes(
    policy: Any,
    chat: Chat,
    machine: Machine,
    asked: Sequence[Probe],
    path: Path,
    max_new_tokens: int,
    observe: Count,
) -> None:
    """Write the policy's greedy replies to what it must not forget, unless the file is there already."""
    if path.is_file():
        return
    prompts = [(Message("user", probe.request),) for probe in asked]
    replies = _replies(policy, chat, machine, prompts, max_new_tokens, observe)
    lines = [
        {"area": probe.area, "request": probe.request, "reply": text}
        for probe, text in zip(asked, replies, strict=True)
    ]
    machine.team.on_main(lambda: write_json_lines(path, lines))


def _replies(
    policy: Any, chat: Chat, machine: Machine, prompts: Sequence[Prompt], max_new_tokens: int, observe: Count
) -> list[str]:
    """Greedy replies, in the order of the prompts; those of like length are asked together."""
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i][-1].content))
    found: dict[int, str] = {}
    for chunk in chunks(order, _BATCH):
        observe(len(found), len(prompts))
        together = [prompts[i] for i in chunk]
        rollout = roll_out(policy, chat, together, machine, max_new_tokens=max_new_tokens, temperature=0)
        found.update(zip(chunk, rollout.texts, strict=True))
    observe(len(prompts), len(prompts))
    return [found[i] for i in range(len(prompts))]


def forgotten(folder: Path, asked: Sequence[Probe], before: str, after: str, *, limit: float) -> Forgetting:
    """Compare the replies of two evaluations to the same probes."""
    told = {name: [row["reply"] for row in _read(folder / FOLDER / probe_file(name))] for name in (before, after)}
    return compared(asked, ("the untrained model", told[before]), ("the trained model", told[after]), limit=limit)


def probe_file(name: str) -> str:
    """The file of an evaluation's replies to the probes."""
    return f"forgetting-{name}.jsonl"


def summarized(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the share of right answers of each evaluation, over all rows and by form, state and language."""
    return {name: _shares(_read(folder / FOLDER / f"{name}.jsonl")) for name in names}


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        return [row for _, row in json_lines(path)]
    except DataError as error:
        raise DataError(f"These answers cannot be read ({error}); train again in another --out.", file=path) from None


def _shares(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        groups["all"].append(line)
        for axis in ("state", "form", "language"):
            groups[f"{axis} {line[axis]}"].append(line)
    return {name: _share(groups[name]) for name in sorted(groups, key=lambda name: (name != "all", name))}


def _share(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the share with its 95 % interval; questions about one situation are a cluster."""
    clusters: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for line in lines:
        counts = clusters[line["situation"]]
        counts[0] += ReplyGrade(line["grade"]).right
        counts[1] += 1
    interval = share_interval(list(clusters.values()))
    return {
        "right": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "n": len(lines),
        "grades": dict(Counter(line["grade"] for line in lines)),
    }
