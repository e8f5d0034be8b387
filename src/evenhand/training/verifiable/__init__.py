"""Training on questions whose right answer is known: fine-tuning, then, if asked for, RL with a grader as the reward.

The stages, each resumable:
 1. Questions: generated, or rows of one's own; some situations are held out. Text of BBQ is not allowed in them.
 2. The model answers general prompts, many of which name a form (sentences, lists, JSON, languages, steps), and
    questions without a passage. Its answers are mixed into the fine-tuning: there the trained model is held to the
    probabilities of the untrained one, so that it forgets little.
 3. SFT on the right answers, in all answer forms. Only answers carry loss, and every row counts the same.
 4. RL, if asked for: several answers to each question are sampled and graded. A right answer earns 1, a wrong person
    costs 1. Nothing in it keeps other answers of the model as they were, so it is not the default.
 5. The held-out questions, answered greedily before training and after each stage.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from evenhand.core import files
from evenhand.core.errors import DataError, PlanError, UsageError
from evenhand.core.files import json_lines, write_json_lines
from evenhand.core.progress import Announce, Count
from evenhand.core.types import Message, Role
from evenhand.core.version import versions
from evenhand.show.table import markdown
from evenhand.stats.intervals import clustered_share
from evenhand.training import card, models, stage
from evenhand.training.chat import Chat, Encoded
from evenhand.training.data import Prompt
from evenhand.training.forgetting import Forgetting, Probe, compared, probes
from evenhand.training.models import Machine
from evenhand.training.options import PPOOptions, SFTOptions, VerifiableOptions
from evenhand.training.parallel import join_team
from evenhand.training.ppo import PPOModels, PPOTrainer
from evenhand.training.questions.folder import draw, load_benchmarks, write_folder
from evenhand.training.questions.generate import QuestionPlan
from evenhand.training.questions.grading import ReplyGrade, grade
from evenhand.training.questions.language import LANGUAGES
from evenhand.training.questions.row import FORMS, QuestionRow, check_classes, read_rows
from evenhand.training.rollout import answer_all, roll_out
from evenhand.training.sft import SFTTrainer
from evenhand.training.verifiable import general

# --- the questions of a training: generated, or the user's rows, checked before the first step ---

T = TypeVar("T")
_HELD_OUT_SHARE = 10
"""One situation in N is held out if the file has no held-out part."""
_MAX_HELD_OUT = 1000
_OTHER_SEED = 1 << 32
"""Added to the seed for questions that the fine-tuning has not seen."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Rows to train on, other rows for RL, held-out rows, and what is known about them."""

    train: Sequence[QuestionRow]
    rl: Sequence[QuestionRow]
    dev: Sequence[QuestionRow]
    card: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def checksums(self) -> dict[str, str]:
        """Return the sha256 of each part, to check the data on resume."""
        parts = {"train": self.train, "rl": self.rl, "dev": self.dev}
        return {name: hashlib.sha256(b"".join(row.line() for row in rows)).hexdigest() for name, rows in parts.items()}


def prompt_of(row: QuestionRow) -> Prompt:
    return tuple(Message(cast(Role, each["role"]), each["content"]) for each in row.messages)


def generated_questions(
    folder: Path, *, count: int, rl_count: int, forms: Sequence[str], languages: Sequence[str], seed: int
) -> Questions:
    """Generate questions into a folder; the questions for RL are new ones about the same situations."""
    plan = QuestionPlan(count, seed, tuple(forms) or FORMS, tuple(languages) or LANGUAGES)
    benchmarks = load_benchmarks()
    card = write_folder(plan, folder, benchmarks)
    rl, _ = draw(replace(plan, seed=seed + _OTHER_SEED), "train", rl_count, benchmarks) if rl_count else ([], {})
    return Questions(read_rows(folder / "train.jsonl"), rl, read_rows(folder / "dev.jsonl"), card)


def own_questions(data: Path, *, count: int | None, forms: Sequence[str], languages: Sequence[str] = ()) -> Questions:
    """Read the user's rows: one file, part of which is held out, or a folder.

    A folder has train.jsonl and dev.jsonl, and may have rl.jsonl; without it, RL asks the training rows again.
    """
    rl: list[QuestionRow] = []
    if data.is_dir():
        train, dev = (read_rows(data / f"{split}.jsonl") for split in ("train", "dev"))
        rl = read_rows(data / "rl.jsonl") if (data / "rl.jsonl").is_file() else []
    else:
        everything = read_rows(data)
        train = [row for row in everything if not _is_held_out(row)]
        dev = [row for row in everything if _is_held_out(row)]
        if not train or not dev:
            raise DataError("There are too few situations to hold some out; add more.", file=data)
    for name, wanted in (("form", forms), ("language", languages)):
        train, dev, rl = (_chosen(each, name, wanted, data) if each else [] for each in (train, dev, rl))
    train, dev = train[:count], dev[:_MAX_HELD_OUT]
    check_classes(train, str(data))
    _check_answers([*train, *rl, *dev], data)
    return Questions(train, rl or train, dev, {"leaks": _check_leaks([*train, *rl, *dev], data)})


def check_spelling(rows: Sequence[QuestionRow], chat: Chat, model: str) -> None:
    """Raise UsageError if a letter or number is not one token of its own: its probability could not be read.

    Korean answers yes in one character, which is a word and need not be a token.
    """
    known: dict[str, int] = chat.tokenizer.get_vocab()
    unknown = known.get(chat.tokenizer.unk_token or "")
    for answer, form in {row.answer: row.form for row in rows if len(row.answer) == 1 and row.answer.isascii()}.items():
        tokens = chat.tokenizer(answer, add_special_tokens=False)["input_ids"]
        if len(tokens) != 1 or tokens[0] == unknown:
            raise UsageError(
                f"The tokenizer of {model} cannot spell {answer!r} in one token, which the form {form} needs; choose "
                "other --forms."
            )


def _chosen(rows: Sequence[QuestionRow], field: str, wanted: Sequence[str], data: Path) -> list[QuestionRow]:
    """Return the rows with a wanted form or language; all rows if none is named."""
    known = sorted({getattr(row, field) for row in rows})
    for value in wanted:
        if value not in known:
            raise DataError(f"No row has the {field} {value!r}; there are {', '.join(known)}.", file=data)
    return [row for row in rows if not wanted or getattr(row, field) in wanted]


def _check_answers(rows: Sequence[QuestionRow], data: Path) -> None:
    """Raise DataError if the answer that a row teaches would itself be graded as wrong."""
    for row in rows:
        if not (found := grade(row, row.answer)).right:
            raise DataError(
                f"The answer {row.answer!r} to {row.question or row.messages[-1]['content']!r} is graded "
                f"{found.value.replace('_', ' ')}; its form, options, marks, people and right do not fit together.",
                file=data,
            )


def _is_held_out(row: QuestionRow) -> bool:
    return hashlib.sha256(row.situation.encode()).digest()[0] % _HELD_OUT_SHARE == 0


def _check_leaks(rows: Sequence[QuestionRow], data: Path) -> dict[str, Any]:
    check = load_benchmarks()
    for row in rows:
        if leak := check.leak_in(row):
            raise DataError(
                f"A row contains text of BBQ ({leak!r}), and a benchmark must not be trained on; remove it.", file=data
            )
    return check.note()


# --- what is asked before and after training, greedily: held-out questions, and what must not be forgotten ---

FOLDER = "evaluation"
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


Policy = tuple[Any, Chat, Machine]
"""A model with its chat template, and where it runs."""


def _answer(
    policy: Policy,
    asked: Sequence[T],
    prompt: Callable[[T], Prompt],
    line: Callable[[T, str, bool], Mapping[str, Any]],
    path: Path,
    max_new_tokens: int,
    observe: Count,
) -> None:
    """Write a line about the policy's greedy answer to each prompt, unless the file is there already."""
    if path.is_file():
        return
    (model, chat, machine), prompts = policy, [prompt(each) for each in asked]
    limits: dict[str, Any] = {"max_new_tokens": max_new_tokens, "temperature": 0, "observe": observe}
    answers = answer_all(model, chat, prompts, machine, **limits)
    lines = [line(each, *answer) for each, answer in zip(asked, answers, strict=True)]
    machine.team.on_main(lambda: write_json_lines(path, lines))


def _graded(row: QuestionRow, text: str, _: bool) -> Mapping[str, Any]:
    about = {name: getattr(row, name) for name in ("form", "state", "language", "situation", "context", "question")}
    return {**about, "answer": row.answer, "reply": text, "grade": grade(row, text)}


def _request(probe: Probe) -> Prompt:
    return (Message("user", probe.request),)


def _probed(probe: Probe, text: str, ended: bool) -> Mapping[str, Any]:
    return {"area": probe.area, "request": probe.request, "reply": text, "ended": ended}


def forgotten(folder: Path, asked: Sequence[Probe], before: str, after: str, *, limit: float) -> Forgetting:
    """Compare the replies of two evaluations to the same probes."""
    rows = [_read(folder / FOLDER / probe_file(name)) for name in (before, after)]
    if any([row["request"] for row in each] != [probe.request for probe in asked] for each in rows):
        raise PlanError(f"{folder} has replies to requests of another version; train anew into another --out.")
    old, new = ([row["reply"] for row in each] for each in rows)
    cut = [sum(not row.get("ended", True) for row in each) for each in rows]
    found = compared(asked, ("the untrained model", old), ("the trained model", new), limit=limit)
    return replace(found, cut=(cut[0], cut[1]))


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


def _shares(lines: Sequence[Mapping[str, object]]) -> dict[str, object]:
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        groups["all"].append(line)
        for axis in ("state", "form", "language"):
            groups[f"{axis} {line[axis]}"].append(line)
    return {name: _share(groups[name]) for name in sorted(groups, key=lambda name: (name != "all", name))}


def _share(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the share with its 95 % interval; questions about one situation are a cluster."""
    interval = clustered_share((line["situation"], ReplyGrade(line["grade"]).right) for line in lines)
    return {
        "right": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "n": len(lines),
        "grades": dict(Counter(line["grade"] for line in lines)),
    }


NAME = "verifiable"
_ROWS = 21000
_LOSS_ROWS = 64
"""Held-out answers whose loss is measured before and after."""
_MEASURED = 8
"""Answers, and tokens of each, that a forecast measures."""


def train_verifiable(options: VerifiableOptions, *, resume: bool = False, announce: Announce) -> dict[str, Any]:
    """Train all stages that are not finished yet; return the record, whose results are the evaluation."""
    if not resume:
        models.check_there(options.model)
    checksums = {} if options.data is None else _checksums(options.data)
    team = join_team(options.shared.get("device"))
    if team.on_main(lambda: stage.open_folder(NAME, options, checksums, resume=resume)):
        return stage.read_record(options.out)
    announce("questions")
    questions = team.on_main(lambda: _begin(options, resume=resume))
    records = {"sft": train_sft(options, options.sft_options(), questions, resume=resume, announce=announce)}
    if (rl := options.rl_options()) is not None:
        records["rl"] = train_rl(options, rl, questions, resume=resume, announce=announce)
    results = summarized(options.out, ["before", *records])
    about = {"stages": records, "questions": questions.card, "versions": versions()}
    if (found := forgetting_of(options)) is not None:
        about["forgetting"] = found.as_json()

    def finish() -> dict[str, Any]:
        record = stage.finish_folder(options.out, "done", results, about)
        (options.out / card.CARD).write_text(_card(options, record), encoding="utf-8")
        return record

    return team.on_main(finish)


def forecast(options: VerifiableOptions) -> tuple[str, list[tuple[str, int, float]]]:
    """The device, and each part of the training with how often it is done and the seconds that it would take at most.

    One fine-tuning step and a few tokens of a few answers are measured here; nothing is written. RL is not measured.
    """
    models.check_there(options.model)
    sft = options.sft_options()
    machine = models.machine(sft.device, sft.dtype, join_team(sft.device))
    with files.scratch() as folder:
        questions = _begin(options.changed(out=folder), resume=True)
    model = models.load_policy(sft, machine)
    chat = models.chat_of(sft, model)
    models.prepare(model, sft, machine)
    rows = [chat.encode(prompt_of(row), row.answer) for row in questions.train[: sft.batch]]
    kept = round(len(questions.train) * options.general / (1 - options.general))
    prompts = [prompt_of(row) for row in questions.dev[:_MEASURED]]
    answers = partial(roll_out, model, chat, prompts, machine, max_new_tokens=_MEASURED, temperature=0)
    token = _seconds(answers) / (len(prompts) * _MEASURED)
    trainer = SFTTrainer(sft, model, chat, rows, machine, equal_rows=True)
    trainer.optimizer.begin(0)
    step = _seconds(lambda: trainer.step(0))
    steps, asked = sft.total_steps(len(questions.train) + kept), len(_asked(options))
    return machine.device, [
        ("answers to held-out questions, before and after", 2 * len(questions.dev), token * options.max_new_tokens),
        ("answers to what must not be forgotten", 2 * asked, token * options.general_tokens),
        ("the model's own answers to general prompts", kept, token * options.general_tokens),
        ("steps of fine-tuning", steps, step),
    ]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def forgetting_of(options: VerifiableOptions) -> Forgetting | None:
    """What the trained model lost against the untrained one; None if it was not asked."""
    if not options.probes:
        return None
    after = result_of(options.out).name
    return forgotten(options.out, _asked(options), "before", after, limit=options.allow_loss)


def _asked(options: VerifiableOptions) -> list[Probe]:
    return probes(options.seed, options.probes) if options.probes else []


def _begin(options: VerifiableOptions, *, resume: bool) -> Questions:
    if not resume:  # what an interrupted training with other options has left
        shutil.rmtree(options.out / FOLDER, ignore_errors=True)
        (options.out / general.FILE).unlink(missing_ok=True)
    if options.data is not None:
        return own_questions(options.data, count=options.rows, forms=options.forms, languages=options.languages)
    rl, count = options.rl_options(), options.rows or _ROWS
    return generated_questions(
        options.out / "questions",
        count=count,
        rl_count=0 if rl is None else rl.total_steps(count) * rl.batch,
        forms=options.forms,
        languages=options.languages,
        seed=options.seed,
    )


def train_sft(
    whole: VerifiableOptions, options: SFTOptions, questions: Questions, *, resume: bool, announce: Announce
) -> dict[str, Any]:
    """Fine-tune the model and answer the held-out questions before and after; return the stage's record."""
    with stage.training_run("verifiable-sft", options, questions.checksums, resume=resume) as run:
        if run.finished:
            return run.record
        model = models.load_policy(options, run.machine)
        chat = models.chat_of(options, model)
        models.check_room(chat, whole.max_new_tokens)
        check_spelling(questions.train, chat, options.model)
        distils = whole.general > 0 and whole.keep > 0
        reference = models.frozen_reference(model, options.lora) if distils else None
        for each in (model, reference):
            models.prepare(each, options, run.machine)

        _evaluate(whole, "before", (model, chat, run.machine), questions, announce)
        rows = [chat.encode(prompt_of(row), row.answer) for row in questions.train]
        kept: list[Encoded] = []
        if count := round(len(rows) * whole.general / (1 - whole.general)):
            kept = general.own_answers(
                model, chat, run.machine, whole.out / general.FILE, count=count, seed=options.seed,
                max_new_tokens=whole.general_tokens, observe=announce("general answers"),
            )  # fmt: skip
        trainer = SFTTrainer(
            options, model, chat, rows, run.machine, equal_rows=True, kept=kept, keep=whole.keep, reference=reference
        )
        steps = options.total_steps(len(rows) + len(kept))
        observe = announce("sft")
        held_out = [chat.encode(prompt_of(row), row.answer) for row in questions.dev[:_LOSS_ROWS]]
        losses = {"held_out_loss_before": trainer.mean_loss(held_out)}
        ended = run.train(trainer, steps, observe)
        losses["held_out_loss_after"] = trainer.mean_loss(held_out)
        _evaluate(whole, "sft", (model, chat, run.machine), questions, announce)
        models.save(model, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        about = {"questions": len(questions.train), "general_answers": len(kept), "steps": steps}
        return run.finish(ended, about | losses | run.first_and_last("loss", steps))


def train_rl(
    whole: VerifiableOptions, options: PPOOptions, questions: Questions, *, resume: bool, announce: Announce
) -> dict[str, Any]:
    """Go on with the fine-tuned model and answer the held-out questions after it; return the stage's record."""
    with stage.training_run("verifiable-rl", options, questions.checksums, resume=resume) as run:
        if run.finished:
            return run.record
        actor, chat = load_actor(options, run.machine)
        reference = models.frozen_reference(actor, None) if options.lora is None else None
        for model in (actor, reference):
            models.prepare(model, options, run.machine)
        prompts = list(dict.fromkeys(prompt_of(row) for row in questions.rl))
        held_out = [prompt_of(row) for row in questions.dev]
        loaded = PPOModels(actor, reference, None, Grader([*questions.rl, *questions.dev]))
        trainer = PPOTrainer(options, loaded, chat, prompts, run.machine, held_out, partial(load_actor, options))
        ended, results = trainer.train(run, resume=resume, observe=announce("rl"))
        _evaluate(whole, "rl", (actor, chat, run.machine), questions, announce)
        models.save(actor, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        return run.finish(ended, results)


def _evaluate(whole: VerifiableOptions, name: str, policy: Policy, questions: Questions, announce: Announce) -> None:
    """Ask the held-out questions, and what must not be forgotten."""
    folder, observe = whole.out / FOLDER, announce(f"held-out questions: {name}")
    _answer(policy, questions.dev, prompt_of, _graded, folder / f"{name}.jsonl", whole.max_new_tokens, observe)
    if asked := _asked(whole):
        observe = announce(f"what must not be forgotten: {name}")
        tokens = min(whole.general_tokens, policy[1].max_length // 2)
        _answer(policy, asked, _request, _probed, folder / probe_file(name), tokens, observe)


def load_actor(options: PPOOptions, machine: Machine) -> tuple[Any, Chat]:
    """Load the fine-tuned model, or its adapter, to go on training it."""
    full = options.lora is None
    actor = models.load_policy(options, machine) if full else models.load_adapted(options.model, machine)
    return actor, models.chat_of(options, actor)


def result_of(folder: Path) -> Path:
    """Return the folder of the trained model."""
    return folder / ("rl" if (folder / "rl").is_dir() else "sft")


def _checksums(data: Path) -> dict[str, str]:
    from evenhand.models.weights import file_sha256

    files = [data] if data.is_file() else sorted(data.glob("*.jsonl"))
    return {file.name: file_sha256(file) for file in files}


def _card(options: VerifiableOptions, record: Mapping[str, Any]) -> str:
    return f"""# {options.out.name}

`{options.model}`, trained by `evenhand train verifiable` on questions whose answer is known. The model is in
`{result_of(options.out).name}/`, with its own card.

## Held-out questions

Right answers in percent, with 95 % intervals (questions about one situation are a cluster). Greedy decoding.

{card.evaluation_table(record["results"])}

## What was forgotten

{_forgotten(options)}

## Data

{_data(options)}
"""


def _forgotten(options: VerifiableOptions) -> str:
    if (found := forgetting_of(options)) is None:
        return "Not measured (--probes 0)."
    return "\n\n".join([found.sentence, markdown(found.table), *found.notes])


def _data(options: VerifiableOptions) -> str:
    if options.data is not None:
        return f"Rows of `{options.data}`."
    return "Generated questions; their card is [questions/README.md](questions/README.md)."
