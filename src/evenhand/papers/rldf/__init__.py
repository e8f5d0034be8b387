"""RLDF (Cheng and others): Tables 1 to 14 and Figures 5 to 12, for any model, trained or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson

from evenhand.data.debates import BIASES
from evenhand.papers.base import BOTH, EVERY, PAPERS, Paper, PaperPage, PaperTable, PlannedPaper, published
from evenhand.papers.reading import UNSAID, lead_of, questions_run, together, warnings_of
from evenhand.papers.rldf.arms import (
    ACCURACY,
    BASE,
    CHOICES,
    METHODS,
    NAME,
    OPINIONS,
    SCORER,
    SELF,
    TEACHER,
    Arms,
    RLDFOptions,
    Training,
    read_arms,
    runs_of,
)
from evenhand.papers.rldf.steps import FOLDER, figure, figure_claims, read_ablation
from evenhand.papers.rldf.tables import (
    FILE,
    claims_of,
    compared,
    people_tables,
    read_cases,
    read_ratings,
    table_four,
    table_one,
    table_seven,
    table_six,
    teacher_tables,
)
from evenhand.runs.execute import SeriesRun
from evenhand.runs.store import FILE_NAME
from evenhand.runs.stored import open_sources
from evenhand.studies.conclusions import conclusions
from evenhand.studies.results import StudyResult
from evenhand.studies.study import study
from evenhand.training.probe import failed

Runs = Mapping[str, Mapping[str, Path]]
"""Benchmark or ablation → arm → folder of its run."""


class RLDF(Paper[RLDFOptions]):
    """Tables 1 to 14 and Figures 5 to 12 for any model."""

    name = NAME
    title = "RLDF: Tables 1 to 14 (BBQ, opinions, people) and Figures 5 to 12"
    folders = (f"{CHOICES}/*", f"{OPINIONS}/*", f"{FOLDER}/*/{OPINIONS}/*")
    Options = RLDFOptions
    examples = (
        "--model hf/PATH --judge openai/NAME --trained rldf=hf/PPO --pairs PAIRS",
        "--model hf/PATH --judge openai/NAME --train --teacher openai/OTHER --out rldf",
        "--model hf/PATH --judge openai/NAME --ablate rounds=1,3,5 --bias age --out rldf",
    )

    def runs(self, options: RLDFOptions) -> list[SeriesRun]:
        return runs_of(options)

    def planned(self, options: RLDFOptions, out: Path | None) -> PlannedPaper | None:
        """Returns the trainings that are asked for; None to measure models that exist."""
        if not options.is_training and options.preset in (BOTH, EVERY):
            return None
        from evenhand.papers.rldf.steps import plan_training

        return plan_training(options, out)

    def page(self, folders: Mapping[str, Path], scorers: Sequence[str] = ()) -> PaperPage:
        """Returns the page of the runs in `folders`; `scorers` are judges to use instead of those of the runs."""
        runs = _by_benchmark(folders)
        studies = {name: found for each, some in runs.items() for name, found in _studies(each, some, scorers)}
        bbq = read_arms(runs.get(CHOICES, {}), "category", [ACCURACY])
        opinions = read_arms(runs.get(OPINIONS, {}), "bias", [UNSAID], _of(OPINIONS, scorers))
        halted = stopped_arms(_out(folders))
        bbq, opinions = replace(bbq, stopped=halted), replace(opinions, stopped=halted)
        ablated = [
            read_ablation(name.partition("/")[2], found, scorers)
            for name, found in runs.items()
            if name.startswith(FOLDER)
        ]
        # With ablations only, the main tables would have no numbers of ours, so they are omitted.
        whole = CHOICES in runs or OPINIONS in runs
        paper = published(NAME)
        return PaperPage(
            title=f"RLDF with {', '.join(_models(bbq, opinions, *(each.arms for each in ablated)))}",
            source=paper.source,
            itself=paper.itself,
            lead=_lead(studies),
            tables=[*(_tables(bbq, opinions, studies, _out(folders)) if whole else ()), *map(figure, ablated)],
            figures=[],
            notes=paper.notes,
            claims=[
                *(claims_of(bbq, opinions) if whole else ()),
                *(claim for each in ablated for claim in figure_claims(each)),
            ],
            warnings=[
                *(_missing(studies) if whole else ()),
                *training_warnings(_out(folders)),
                *_warnings(studies, opinions),
            ],
            process=together(studies),
            cases=read_cases(runs.get(OPINIONS, {}), scorers),
            cases_title="Figure 7: cases, before and after training",
        )


PAPERS.register(NAME)(RLDF())


def _tables(bbq: Arms, opinions: Arms, studies: Mapping[str, StudyResult], out: Path) -> list[PaperTable]:
    said = {name: [*map(str, conclusions(found))] for name, found in studies.items()}
    on_opinions = [sentence for name in said if _is_opinions(name) for sentence in said[name]]
    return [
        table_one(bbq, said.get(CHOICES, [])),
        compared(opinions, "table3", "BS", on_opinions),
        compared(opinions, "figure5", "CE"),
        compared(opinions, "figure6", "LS"),
        table_four(opinions),
        *teacher_tables(opinions, _teacher(out)),
        *people_tables(read_ratings(out / FILE)),
        table_six(bbq),
        table_seven(),
    ]


def _studies(name: str, runs: Mapping[str, Path], scorers: Sequence[str]) -> Iterator[tuple[str, StudyResult]]:
    """Yields the study of the runs; one for each type of bias where trainings are asked only about their own."""
    own = {bias: [run for arm, run in runs.items() if Training.named(arm).bias == bias] for bias in BIASES}
    shared = [run for arm, run in runs.items() if Training.named(arm).bias is None]
    if name != OPINIONS or not any(own.values()):
        yield name, study(list(runs.values()), scorers=_of(name, scorers))
        return
    for bias, found in own.items():
        if found:
            yield f"{name}/{bias}", study([*shared, *found], scorers=scorers)


def _is_opinions(study_name: str) -> bool:
    return study_name.partition("/")[0] == OPINIONS


def _teacher(out: Path) -> str:
    """Returns the teacher of the arm T-S, where its debates were held here."""
    runs = [path.parent for path in sorted(out.glob(f"debates/ts*/{FILE_NAME}"))]
    if not runs:
        return "the teacher"
    with open_sources(runs[:1]) as ((first,), _):
        return first.plan.models[0]["teacher"].spec


def _models(*arms: Arms) -> list[str]:
    return list(dict.fromkeys(each.model for each in arms if each.model)) or ["no model"]


def _by_benchmark(folders: Mapping[str, Path]) -> Runs:
    """Groups the runs by benchmark or ablation; the untrained model's run comes first."""
    runs: dict[str, dict[str, Path]] = {}
    for name, path in sorted(folders.items(), key=lambda each: each[1].name != BASE):
        parts = name.split("/")
        runs.setdefault("/".join(parts[: 2 if parts[0] == FOLDER else 1]), {})[path.name] = path
    order = [CHOICES, OPINIONS, *(f"{FOLDER}/{bias}" for bias in BIASES)]
    return {name: runs[name] for name in dict.fromkeys((*order, *sorted(runs))) if name in runs}


def _out(folders: Mapping[str, Path]) -> Path:
    """Returns the folder of the page, which contains the run folders."""
    name, path = next(iter(folders.items()))
    return path.parents[name.count("/")]


def _of(name: str, scorers: Sequence[str]) -> Sequence[str]:
    return () if name == CHOICES else scorers


def _lead(studies: Mapping[str, StudyResult]) -> str:
    parts: list[str] = []
    for found in studies.values():
        facts = next(iter(found.provenance.values()))
        judged = f", rated by {', '.join(found.scorers)}" if found.scorers else ""
        parts.append(f"{questions_run(found)} of {found.benchmark}, seed {facts['plan']['seeds'][0]}{judged}")
    return lead_of(parts)


def stopped_arms(out: Path) -> frozenset[str]:
    """Returns the arms of which a training failed or was stopped, by the records of the page's trainings."""
    ended = {path.parents[1].name: _record(path) for path in out.glob("models/*/ppo/training.json")}
    names = {name for name, record in ended.items() if record is None or record.get("ended", "done") != "done"}
    folders = {"sr": SELF, "ts": TEACHER}
    return frozenset(folders.get(arm, arm) for arm in (Training.named(name).arm for name in names))


def training_warnings(out: Path) -> list[str]:
    """Returns what the records of the page's trainings warn of: those that were stopped, and bad reward models."""
    stopped: list[str] = []
    fooled: list[str] = []
    for path in sorted(out.glob("models/*/*/training.json")):
        name, record = path.parent.relative_to(out).as_posix(), _record(path)
        if record is None:
            stopped.append(f"{name}: {path.name} is damaged, so how this training ended is not known.")
            continue
        results = record.get("results", {})
        if path.parent.name == "ppo" and (ended := record.get("ended", "done")) != "done":
            same = ", so it is the fine-tuned model (SFT)" if results.get("kept_step") == 0 else ""
            stopped.append(f"{name}: training {ended}{same}.")
        probe = results.get("probe")
        if probe and (kinds := failed(probe)):
            wins = ", ".join(f"{kind} {100 * probe['kinds'][kind]['wins']:.0f} %" for kind in kinds)
            fooled.append(f"{name} ({wins})")
    if fooled:
        stopped.append(
            "Worthless answers win too often against good ones in these reward models, so a policy can earn reward "
            f"without being less biased: {'; '.join(fooled)}."
        )
    return stopped


def _record(path: Path) -> dict[str, Any] | None:
    try:
        found: Any = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return cast(dict[str, Any], found) if isinstance(found, dict) else None


def _missing(studies: Mapping[str, StudyResult]) -> list[str]:
    ran = {name.partition("/")[0] for name in studies}
    return [f"{name} was not run; its cells are empty." for name in (CHOICES, OPINIONS) if name not in ran]


def _warnings(studies: Mapping[str, StudyResult], opinions: Arms) -> list[str]:
    found: list[str] = []
    judges = {(arm.models["base"], judge) for each in studies.values() for arm in each.arms for judge in each.scorers}
    if any(judge.startswith(f"{SCORER}:{model}@") for model, judge in judges):
        found.append(
            "The model rates its own answers and those of models trained from it. Choose another judge with --judge."
        )
    rated = [each for name, each in studies.items() if _is_opinions(name)]
    if rated and not all(map(_held_out, rated)) and len(opinions.alone) > len(METHODS):
        found.append("Opinions include topics that trained models may have seen. Name the pairs folder with --pairs.")
    silent = [
        f"{title}: {fault}"
        for arm, title in opinions.titles.items()
        if arm in opinions and (fault := opinions.fault(arm))
    ]
    if silent:
        found.append(f"Too short, too long or too often silent to be called less biased: {'; '.join(silent)}.")
    return found + warnings_of(studies, {})


def _held_out(found: StudyResult) -> bool:
    return all("data" in facts["plan"]["benchmark_options"] for facts in found.provenance.values())
