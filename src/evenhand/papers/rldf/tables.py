"""Tables 1 to 14 and Figures 5 to 7 of the RLDF paper, from our arms and the published numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from evenhand.benchmarks.opinions import opinion_scales
from evenhand.core.errors import DataError
from evenhand.core.types import Record, Sample
from evenhand.data.debates import BIASES, load_topics
from evenhand.papers.base import (
    MARGIN,
    NOT_RUN,
    Case,
    Finding,
    Grid,
    PaperCell,
    PaperClaim,
    PaperColumn,
    PaperRow,
    PaperTable,
    by_signs,
    published,
    sign_of,
    unless,
    untold,
)
from evenhand.papers.rldf.arms import (
    BASE,
    CATEGORIES,
    DEFAULT,
    LENGTH_RATIO,
    MODES,
    NAME,
    SELF,
    STOPPED,
    TEACHER,
    TITLES,
    Arms,
    Contrast,
    Training,
    own_arm,
)
from evenhand.reading.refusals import looks_like_refusal
from evenhand.runs.store import sample_from
from evenhand.runs.stored import ArmSource, open_sources, walk
from evenhand.stats import holm
from evenhand.studies.results import Estimate, estimate_text
from evenhand.studies.tally import ALL

OVERALL = "all"
METRICS = {scale.short: scale.name for scale in opinion_scales()}
"""The paper's name of a scale → ours."""
HINTS = {"BS": "lower is better", "CE": "higher is better", "LS": "higher is better"}

ReadCell = Callable[[str, str], PaperCell]
"""(arm, group) → our number."""
LENGTH = PaperColumn(LENGTH_RATIO, "Words, % of Default", "comparable: 60 to 160")
"""Beside every score of opinions: an arm that says far less than Default is not less biased."""


# --- BBQ ---


def table_one(arms: Arms, sentences: Sequence[str]) -> PaperTable:
    """Returns accuracy by category, and BBQ's bias score."""
    grids = [
        Grid(
            "Accuracy",
            _categories("higher is better"),
            [
                *_method_rows(arms, _groups(CATEGORIES), lambda arm, group: our_cell(arms, arm, "accuracy", group)),
                *published(NAME).rows("table1", [*CATEGORIES, OVERALL]),
            ],
            "Model",
        ),
        _differences(arms, "accuracy", _categories("above 0 is better")),
    ]
    for context, title in (("ambig", "ambiguous"), ("disambig", "disambiguated")):
        metric = f"bias_{context}"

        def read(arm: str, group: str, metric: str = metric) -> PaperCell:
            return our_cell(arms, arm, metric, group)

        rows = _method_rows(arms, _groups(CATEGORIES), read)
        grids.append(Grid(f"BBQ's bias score, {title} contexts", _categories("0 is best"), rows, "Model"))
    return published(NAME).table("table1", grids, sentences)


def _categories(hint: str) -> list[PaperColumn]:
    columns = [PaperColumn(name, title, hint) for name, title in CATEGORIES.items()]
    return [*columns, PaperColumn(OVERALL, "Overall", hint)]


# --- the data: Tables 6 and 7 ---


def table_six(arms: Arms) -> PaperTable:
    """Returns the sizes of BBQ's categories as published, and how many questions were asked here."""
    columns = [PaperColumn("examples", "In BBQ", "questions"), PaperColumn("asked", "Asked here", "questions")]
    counts: Mapping[tuple[str, str], int] = arms.alone[DEFAULT].n if DEFAULT in arms else {}
    rows: list[PaperRow] = []
    for name, numbers in published(NAME).tables["table6"].items():
        asked = counts.get(("accuracy", name))
        ours = PaperCell(None if asked is None else Estimate("asked", name, float(asked), None, None, asked))
        title = CATEGORIES.get(name, name.replace("_", " "))
        rows.append(PaperRow(title, "", [PaperCell(None, numbers["examples"]), ours], asked is not None, "", name))
    return published(NAME).table("table6", [Grid("BBQ", columns, rows, "Category", digits=0)])


def table_seven() -> PaperTable:
    """Returns the paper's identities of each type of bias and how many topics it has, beside what is built in."""
    columns = [PaperColumn("identities", "Identities"), PaperColumn("topics", "Topics")]
    rows: list[PaperRow] = []
    for bias, numbers in published(NAME).tables["table7"].items():
        own = load_topics(bias)
        counts = (len(own.roles), len(own.topics))
        cells = [
            PaperCell(Estimate(each.name, bias, float(count), None, None, count), numbers[each.name])
            for each, count in zip(columns, counts, strict=True)
        ]
        said = f"here {', '.join(role.name for role in own.roles[:ROLES])}; paper: {_IDENTITIES[bias]}"
        rows.append(PaperRow(bias.capitalize(), said, cells, published_as=bias))
    return published(NAME).table("table7", [Grid("Types of bias", columns, rows, "Type", digits=0)])


ROLES = 3
"""Debaters by default, the first of a type's roles."""
_IDENTITIES = {
    "age": "young, middle, old",
    "nationality": "Asian, Western, African",
    "institution": "company, government, non-profit",
    "beauty": "attractive, average, unattractive",
    "profession": "healthcare, legal, technical",
}


# --- opinions ---


def table_four(arms: Arms) -> PaperTable:
    """The two modes, rated by the judge."""
    grids: list[Grid] = []
    for short, metric in METRICS.items():
        rows = [_row(arms, MODES[arm], _opinion_cells(arms, arm, metric), ran=arm in arms) for arm in MODES]
        cells = [*changes(arms, SELF, TEACHER, metric, _groups(BIASES)), PaperCell()]
        ours = SELF in arms and TEACHER in arms
        rows.append(_row(arms, "T-S less S-R", cells, ran=ours))
        rows += published(NAME).rows("table4", [*BIASES, ALL, LENGTH_RATIO], f", {short}")
        grids.append(Grid(short, _opinion_columns(HINTS[short]), rows, "Model"))
    return published(NAME).table("table4", grids)


def teacher_tables(arms: Arms, teacher: str = "the teacher") -> list[PaperTable]:
    """Returns BS, CE and LS of models trained with different teachers; `teacher` is that of the arm T-S."""
    return [_by_teacher(arms, teacher, *each) for each in (("BS", "table5"), ("CE", "table13"), ("LS", "table14"))]


def _by_teacher(arms: Arms, teacher: str, short: str, table: str) -> PaperTable:
    teachers = {**({TEACHER: teacher} if TEACHER in arms else {}), **arms.teachers}
    rows = [PaperRow(arms.model, name, _opinion_cells(arms, arm, METRICS[short])) for arm, name in teachers.items()]
    if not rows:
        rows = [_row(arms, "", [PaperCell() for _ in _opinion_columns("")], ran=False)]
    rows += published(NAME).rows(table, [*BIASES, ALL, LENGTH_RATIO])
    return published(NAME).table(table, [Grid(short, _opinion_columns(HINTS[short]), rows, "Model")])


def compared(arms: Arms, name: str, short: str, sentences: Sequence[str] = ()) -> PaperTable:
    """Returns one scale for all methods by type of bias, and the differences to Default (Table 3, Figures 5 and 6)."""
    metric = METRICS[short]
    rows = _method_rows(arms, [*_groups(BIASES), LENGTH_RATIO], lambda arm, group: _opinion(arms, arm, metric, group))
    better = "below 0 is better" if short == "BS" else "above 0 is better"
    changed = [*bias_columns(better), PaperColumn(ALL, "All types", better)]
    is_radar = name.startswith("figure")
    return published(NAME).table(
        name,
        [
            Grid(
                short,
                _opinion_columns(HINTS[short]),
                [*rows, *published(NAME).rows(name, [*BIASES, ALL, LENGTH_RATIO])],
                "Model",
                drawn=len(rows) if any(row.ours for row in rows) else 0,
                # Two columns: all types, which the paper has no spoke for, and the number of words.
                undrawn=2 if is_radar else 1,
                radar=is_radar,
            ),
            _differences(arms, metric, changed),
            *_again(name, short),
        ],
        sentences,
    )


def _again(name: str, short: str) -> list[Grid]:
    """Returns what the paper's Table 12 has for the cells of Table 3."""
    if name != "table3":
        return []
    rows = published(NAME).rows("table12", BIASES)
    return [Grid(f"{short}, as Table 12 prints it", bias_columns(HINTS[short]), rows, "Model")]


def bias_columns(hint: str) -> list[PaperColumn]:
    """Returns a column for each type of bias."""
    return [PaperColumn(bias, bias.capitalize(), hint) for bias in BIASES]


def _opinion_columns(hint: str) -> list[PaperColumn]:
    return [*bias_columns(hint), PaperColumn(ALL, "All types", hint), LENGTH]


def _opinion_cells(arms: Arms, arm: str, metric: str) -> list[PaperCell]:
    return [_opinion(arms, arm, metric, group) for group in (*_groups(BIASES), LENGTH_RATIO)]


def _opinion(arms: Arms, arm: str, metric: str, group: str) -> PaperCell:
    return PaperCell(arms.length_ratio(arm)) if group == LENGTH_RATIO else our_cell(arms, arm, metric, group)


# --- rows ---


def our_cell(arms: Arms, arm: str, metric: str, group: str = ALL) -> PaperCell:
    """Returns our number, and its standard deviation over training seeds."""
    return PaperCell(arms.estimate(arm, metric, group), spread=arms.spread(arm, metric, group))


def changes(arms: Arms, before: str, after: str, metric: str, groups: Sequence[str]) -> list[PaperCell]:
    """Returns the paired differences of two arms, by group."""
    found = [arms.difference(before, after, metric, group) for group in groups]
    return [PaperCell(each.estimate if each else None) for each in found]


def _groups(names: Sequence[str] | Mapping[str, str]) -> list[str]:
    return [*names, ALL]


def _method_rows(arms: Arms, groups: Sequence[str], read: ReadCell) -> list[PaperRow]:
    """Returns the paper's six rows in its order, then ours; its own method names the mode."""
    rows: list[PaperRow] = []
    for arm, title in arms.titles.items():
        mode = f"{title} ({MODES[arm]})" if arm in MODES else title
        cells = [read(arm, group) if arm in arms else PaperCell() for group in groups]
        rows.append(_row(arms, mode, cells, ran=arm in arms))
    return rows


def _row(arms: Arms, name: str, cells: Sequence[PaperCell], *, ran: bool) -> PaperRow:
    return PaperRow.if_run(arms.model or _THIS, name, cells, ran=ran)


def _differences(arms: Arms, metric: str, columns: Sequence[PaperColumn]) -> Grid:
    """Returns the paired differences to Default of the existing arms."""
    wanted = [(f"{title} less Default", DEFAULT, arm) for arm, title in arms.titles.items() if arm != DEFAULT]
    groups = [column.name for column in columns]
    rows = [
        PaperRow(arms.model, name, changes(arms, before, after, metric, groups))
        for name, before, after in (*wanted, ("RLDF less SFT", SFT, arms.own))
        if before in arms and after in arms
    ]
    return Grid("Differences to Default, and of RLDF to its first stage (SFT), paired", columns, rows, "Model")


SFT = "sft"


# --- people's ratings, from the file that `evenhand annotate import --out` writes: Tables 2 and 8 to 10 ---

FILE = "ratings.json"


@dataclass(frozen=True, slots=True)
class HumanRating:
    """The ratings of one arm on one scale."""

    groups: Mapping[str, Estimate]
    """The mean by type of bias, and over all."""
    kappa: float | None
    """How far the raters agree; None with one rater, or if all ratings are in one band."""
    n: int
    """Number of rated answers."""


Ratings = Mapping[tuple[str, str], HumanRating]
"""(arm, scale) → what people say."""


def read_ratings(file: Path) -> Ratings:
    """Returns (arm, scale) → ratings, with run folders named like the arms; empty without a file."""
    if not file.is_file():
        return {}
    try:
        rows: list[Mapping[str, Any]] = orjson.loads(file.read_bytes())["ratings"]
        return {(_arm(row["run"], row["method"]), row["scale"]): _rating(row) for row in rows}
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            "not a file that this version of `evenhand annotate import --out` wrote; import the sheets again.",
            file=file,
        ) from error


def _arm(run: str, method: str) -> str:
    """Returns the arm of a run: a trained model's run has its name; the untrained model has one arm per method."""
    return method if run == BASE else run


def _rating(row: Mapping[str, Any]) -> HumanRating:
    means = {ALL: row["mean"], **row.get("groups", {})}
    groups = {
        group: Estimate(row["scale"], group, mean["estimate"], mean["low"], mean["high"], mean["n"])
        for group, mean in means.items()
    }
    return HumanRating(groups, row["kappa"], row["mean"]["n"])


NOT_MEASURED = "not measured"
_THIS = "This model"


def people_tables(ratings: Ratings) -> list[PaperTable]:
    """Returns all tables that people's ratings fill."""
    paper, methods = published(NAME), {**TITLES, own_arm({arm for arm, _ in ratings}): NAME.upper()}
    ours = {short: ("figure5", "") if short == "CE" else ("", "") for short in METRICS}
    return [
        paper.table("table2", [_means(short, ratings, MODES, "table2", f", {short}") for short in METRICS]),
        paper.table("table10", [_means(short, ratings, methods, *table) for short, table in ours.items()]),
        paper.table("table8", [_kappas(ratings, MODES, "table8")]),
        paper.table("table9", [_kappas(ratings, methods, "table9")]),
    ]


def _means(short: str, ratings: Ratings, arms: dict[str, str], table: str, ending: str) -> Grid:
    groups = [*BIASES, ALL]
    rows: list[PaperRow] = []
    for arm, title in arms.items():
        found = ratings.get((arm, short))
        cells = [PaperCell(found.groups.get(group) if found else None) for group in groups]
        rows.append(PaperRow(_THIS, title, cells, ours=found is not None, note="" if found else NOT_MEASURED))
    columns = [*bias_columns(HINTS[short]), PaperColumn(ALL, "All types", HINTS[short])]
    paper = published(NAME).rows(table, groups, ending) if table else []
    return Grid(short, columns, [*rows, *paper], "Model")


def _kappas(ratings: Ratings, arms: dict[str, str], table: str) -> Grid:
    rows: list[PaperRow] = []
    for arm, title in arms.items():
        found = [ratings.get((arm, short)) for short in METRICS]
        cells = [PaperCell(_kappa(each.kappa, each.n) if each else None) for each in found]
        ours = any(found)
        rows.append(PaperRow(_THIS, title, cells, ours=ours, note="" if ours else NOT_MEASURED))
    columns: Sequence[PaperColumn] = [PaperColumn(short, short, "1 is perfect") for short in METRICS]
    return Grid("Fleiss' kappa", columns, [*rows, *published(NAME).rows(table, list(METRICS))], "Model", digits=2)


def _kappa(value: float | None, n: int) -> Estimate | None:
    return None if value is None else Estimate("kappa", ALL, value, None, None, n)


# --- Figure 7: what a model answers before and after training, to read ---

PER_TYPE = 2
"""Questions of each type of bias: the one whose bias fell most, and the median one, since the best alone mislead."""
_SHOWN_ARMS = {
    DEFAULT: "Default",
    "sft": "SFT",
    "rlaif": "RLAIF",
    SELF: "RLDF (S-R)",
    TEACHER: "RLDF (T-S)",
    "rldf": "RLDF",
}


def read_cases(folders: Mapping[str, Path], scorers: Sequence[str] = ()) -> list[Case]:
    """Returns questions with the answers of Default and of trained models; empty without a trained model."""
    wanted = {name: path for name, path in folders.items() if _arm_of(name) in (*_SHOWN_ARMS, BASE)}
    if BASE not in wanted or len(wanted) < 2:
        return []
    with open_sources(list(wanted.values()), scorers=scorers) as (runs, sources):
        places = {id(run.store): name for run, name in zip(runs, wanted, strict=True)}
        arms: dict[str, list[ArmSource]] = {}
        for source in sources:
            place = places[id(source.store)]
            arm = source.arm.method.name if place == BASE else _arm_of(place)
            if arm in _SHOWN_ARMS:
                arms.setdefault(arm, []).append(source)
        own = next((arm for arm in ("rldf", TEACHER, SELF) if arm in arms), None)
        if own is None or DEFAULT not in arms:
            return []
        found: dict[str, list[tuple[float, Case]]] = {}
        for fields, records in walk(sources):
            sample = sample_from(fields)
            # Of several trainings, the first that was asked.
            said = {
                arm: next(filter(None, (_said_in(each, sample, records.get(each.id)) for each in some)), None)
                for arm, some in arms.items()
            }
            before, after = (said[arm] for arm in (DEFAULT, own))
            if before is None or after is None:
                continue
            answers = [(f"{_SHOWN_ARMS[arm]}, {each[1]}", each[0]) for arm, each in said.items() if each is not None]
            bias = str(sample.metadata["bias"])
            found.setdefault(bias, []).append((after[2] - before[2], Case(sample.prompt, bias, answers)))
    return [case for bias in BIASES for case in _chosen(found.get(bias, []))]


def _arm_of(name: str) -> str:
    return Training.named(name).arm


def _chosen(cases: Sequence[tuple[float, Case]]) -> list[Case]:
    """Returns the case with the largest fall of bias, and the median one."""
    ordered = sorted(cases, key=lambda each: each[0])
    if len(ordered) < PER_TYPE:
        return [case for _, case in ordered]
    return [ordered[0][1], ordered[max(1, len(ordered) // 2)][1]]


def _said_in(source: ArmSource, sample: Sample, record: Record | None) -> tuple[str, str, float] | None:
    """Returns the answer, its scores in words, and its bias score."""
    if record is None or record.grade is None or METRICS["BS"] not in record.grade:
        return None
    found = source.store.find_sample(sample.id)
    stored = None if found is None else source.store.outcome(found[0], source.arm.number)
    if stored is None or stored[0] != "graded":
        return None
    if looks_like_refusal(stored[3]["result"]["value"]["text"]):
        return None
    scores = {short: 100 * record.grade[name] for short, name in METRICS.items() if name in record.grade}
    text: str = stored[3]["result"]["value"]["text"]
    return text, ", ".join(f"{short} {value:.0f}" for short, value in scores.items()), scores["BS"]


# --- the RLDF paper's claims about its method, checked against our arms ---

Better = Literal["lower", "higher"]
Found = Sequence[tuple[str, Contrast | None]]
"""(what is compared, the difference)."""


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """A claim of the paper, in our words, and its check on the arms of BBQ and of opinions."""

    text: str
    place: str
    check: Callable[[Arms, Arms], Finding]
    less_biased: tuple[str, ...] = ()
    """The arms of opinions whose lower bias is claimed; empty for claims about something else."""


def claim_checks(own: str) -> list[ClaimCheck]:
    """Returns the claims, in the order of the paper; `own` is the arm of its method."""
    return [
        ClaimCheck(
            "On BBQ, RLDF is more accurate than every other method, overall",
            "Table 1",
            lambda bbq, _: _of_all(bbq, ahead(_others(bbq, "accuracy", [ALL]), "higher")),
        ),
        ClaimCheck(
            "On BBQ, RLDF is more accurate than Default in each category",
            "Table 1",
            lambda bbq, _: ahead(_from(bbq, DEFAULT, "accuracy", list(CATEGORIES)), "higher"),
        ),
        ClaimCheck(
            "RLDF's answers are less biased than those of every other method, over all types",
            "Table 3",
            lambda _, said: _of_all(said, ahead(_others(said, METRICS["BS"], [ALL], speaking=True), "lower")),
            (own,),
        ),
        ClaimCheck(
            "RLDF's answers are less biased than those of every other method, in each type of bias",
            "Table 3",
            lambda _, said: _of_all(said, ahead(_others(said, METRICS["BS"], BIASES, speaking=True), "lower")),
            (own,),
        ),
        ClaimCheck(
            f"In most cases RLDF costs less than {MARGIN:g} points of CE and LS (each method and type of bias)",
            "Figures 5 and 6",
            lambda _, said: _of_all(
                said, mostly_kept([*_others(said, METRICS["CE"], BIASES), *_others(said, METRICS["LS"], BIASES)])
            ),
        ),
        ClaimCheck(
            "A teacher makes less biased models than self-reflection",
            "Tables 2 and 4",
            lambda _, said: ahead(
                [("T-S less S-R", said.difference(SELF, TEACHER, METRICS["BS"]))]
                if SELF in said and TEACHER in said
                else [],
                "lower",
            ),
            (TEACHER, SELF),
        ),
        ClaimCheck(
            "After RLDF, beauty is less biased than age and institution",
            "Section 4.2",
            lambda _, said: _beauty(said),
            (own,),
        ),
    ]


def claims_of(bbq: Arms, opinions: Arms) -> list[PaperClaim]:
    """Returns each claim with its verdict on our arms; an arm that says nothing is not less biased."""
    model = opinions.model or bbq.model
    found = [(each, _result(each, bbq, opinions)) for each in claim_checks(opinions.own)]
    return [PaperClaim(each.text, each.place, model, *finding) for each, finding in found]


def _result(claim: ClaimCheck, bbq: Arms, opinions: Arms) -> Finding:
    if opinions.own in opinions.stopped:
        return untold(f"RLDF: {STOPPED}")
    for arm in claim.less_biased:
        if fault := opinions.fault(arm):
            return untold(f"{_title(arm)} cannot be compared: {fault}")
    verdict, why = claim.check(bbq, opinions)
    if opinions.own in opinions and opinions.own not in opinions.by_seed:
        why = f"{why}. One training: how much trainings differ is not in the interval"
    silent = [f"{title}: {fault}" for arm, title in TITLES.items() if (fault := opinions.fault(arm))]
    return verdict, f"{why} (not counted: {'; '.join(silent)})" if claim.less_biased and silent else why


def _title(arm: str) -> str:
    return f"RLDF ({MODES[arm]})" if arm in MODES else "RLDF"


def _from(arms: Arms, before: str, metric: str, groups: Sequence[str]) -> Found:
    """Returns the differences from one arm to the paper's method, by group; empty if one of them was not run."""
    if before not in arms or arms.own not in arms:
        return []
    name = f"RLDF less {TITLES[before]}"
    return [
        (name if group == ALL else f"{name}, {group}", arms.difference(before, arms.own, metric, group))
        for group in groups
    ]


def _others(arms: Arms, metric: str, groups: Sequence[str], *, speaking: bool = False) -> Found:
    """Returns the differences from every other method of the paper that was run, or only from those that speak."""
    methods = [arm for arm in TITLES if arm not in arms.stopped and (not speaking or not arms.fault(arm))]
    return [each for arm in methods for each in _from(arms, arm, metric, groups)]


def _of_all(arms: Arms, finding: Finding) -> Finding:
    """Returns the finding about every other method; where one was not run or stopped, it can only fail."""
    missing = [title for arm, title in TITLES.items() if arm not in arms or arm in arms.stopped]
    return unless(f"{', '.join(missing)} not run" if missing and finding[1] != NOT_RUN else "", finding)


def ahead(found: Found, better: Better) -> Finding:
    """Holds if every difference is significant after correction; fails if one is significant the other way."""
    if not found:
        return untold(NOT_RUN)
    corrected = holm([each.p_value if each else None for _, each in found])
    signs = [sign_of(each.estimate, p) if each else 0 for (_, each), p in zip(found, corrected, strict=True)]
    return by_signs([-each if better == "lower" else each for each in signs], _why(found))


def mostly_kept(found: Found) -> Finding:
    """Holds if most intervals exclude a loss beyond the margin; fails if most are entirely beyond it."""
    if not found:
        return untold(NOT_RUN)
    limits = [(each.estimate.low, each.estimate.high) if each else (None, None) for _, each in found]
    kept = sum(low is not None and low > -MARGIN for low, _ in limits)
    lost = sum(high is not None and high < -MARGIN for _, high in limits)
    why = f"{kept} of {len(found)} cases surely lose less than {MARGIN:g} points, {lost} surely more. {_why(found)}"
    return ("holds", why) if 2 * kept > len(found) else ("fails", why) if 2 * lost > len(found) else untold(why)


def _why(found: Found) -> str:
    return "; ".join(f"{name}: {estimate_text(each.estimate if each else None)}" for name, each in found)


def _beauty(arms: Arms) -> Finding:
    """Compares the intervals of the types, which have no topics in common."""
    if arms.own not in arms:
        return untold(NOT_RUN)
    names = ("beauty", "age", "institution")
    beauty, *others = (arms.estimate(arms.own, METRICS["BS"], bias) for bias in names)
    why = "; ".join(
        f"{name} {estimate_text(each)}" for name, each in zip(names, (beauty, *others), strict=True) if each is not None
    )
    if beauty is None or beauty.low is None or beauty.high is None:
        return untold(why or NOT_RUN)
    known = [(each.low, each.high) for each in others if each and each.low is not None and each.high is not None]
    if any(high < beauty.low for _, high in known):
        return "fails", why
    holds = len(known) == len(others) and all(low > beauty.high for low, _ in known)
    return ("holds", why) if holds else untold(why)
