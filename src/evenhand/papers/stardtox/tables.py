"""Tables II and III and Figure 3 of StarDTox: the arms of its runs, the rows that they fill, the published numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from evenhand.benchmarks.realtoxicity import BANDS
from evenhand.core.format import limits, number
from evenhand.papers.base import (
    NOT_RUN,
    PRESETS,
    Bar,
    Figure,
    Finding,
    Grid,
    PaperCell,
    PaperClaim,
    PaperColumn,
    PaperRow,
    PaperTable,
    all_of,
    by_signs,
    kept,
    moves,
    preset_of,
    published,
    unless,
    unshown,
    untold,
)
from evenhand.papers.reading import PairedArms, PairedDifference, read_paired_arms
from evenhand.runs.controls import steering_caveats
from evenhand.runs.plan import ArmKey
from evenhand.runs.stored import open_sources
from evenhand.stats import Interval, clustered_share
from evenhand.studies.results import ArmResult, Estimate, StudyResult, estimate_text
from evenhand.studies.tally import ALL

NAME = "stardtox"
TEXTS, CHOICES, BASES = "realtoxicity", "bbq", "self_debias"
"""The runs: completions, questions, and completions of models without instruction tuning."""
ITERATIONS = (1, 2)
_SIZES = {"gpt2": "Standard", "gpt2-medium": "Medium", "gpt2-large": "Large", "gpt2-xl": "XL"}
"""The models of the paper's rows of Self-Debias (Gen)."""
_NAMES = {size: name for name, size in _SIZES.items()}


@dataclass(frozen=True, slots=True)
class Arm:
    """An arm of the paper's runs."""

    method: str
    preset: str = ""
    """The preset of StarDTox; empty for methods without one."""
    performance: bool = True
    """Whether StarDTox's performance evaluator takes part."""

    @property
    def title(self) -> str:
        return self.method if self.performance else f"{self.method} without performance"

    def fits(self, key: ArmKey) -> bool:
        if key.method != self.method:
            return False
        with_performance = bool(key.options.get("performance", True))
        return not self.preset or (preset_of(key), with_performance) == (self.preset, self.performance)


DEFAULT, FAIR = Arm("default"), Arm("fair_prompt")
STEERED = Arm("self_debias_gen")
EXPLAINED, REPROMPTED = Arm("self_debias_explain"), Arm("self_debias_reprompt")


@dataclass(frozen=True, slots=True)
class Line:
    """A row: our arm (None if there is none) and its name in the paper (empty if it is not there)."""

    method: str
    setting: str
    arm: Arm | None
    published_as: str
    iteration: int | None = None


_DEFAULT = Line("Default", "", DEFAULT, "GPT-3.5 Default")
_FAIR = Line("Fairness-aware prompt", "", FAIR, "GPT-3.5 + Fairness-aware Prompt")


def text_lines(presets: Sequence[str]) -> list[Line]:
    """Returns the rows of Table II, without those of Self-Debias on other models."""
    return [
        _DEFAULT,
        _FAIR,
        Line("Self-Debias (Gen)", "this model", STEERED, ""),
        *_iterations("StarDTox w/ performance", "STARDTOX w/ Performance", presets, performance=True),
        *_iterations("StarDTox w/o performance", "STARDTOX w/o Performance", presets, performance=False),
    ]


def choice_lines(presets: Sequence[str]) -> list[Line]:
    """Returns the rows of Table III."""
    return [
        _DEFAULT,
        _FAIR,
        *_iterations("StarDTox", "STARDTOX", presets, performance=True),
        Line("Self-Debias (QA)", "Explanation", EXPLAINED, "Self-Debias (QA), Explanation"),
        Line("Self-Debias (QA)", "Reprompting", REPROMPTED, "Self-Debias (QA), Reprompting"),
    ]


def _iterations(method: str, published_as: str, presets: Sequence[str], *, performance: bool) -> list[Line]:
    """Returns a row for each preset and iteration; the published numbers stand beside the first preset."""
    return [
        Line(
            method,
            f"{preset}, Iter. {k}",
            Arm(NAME, preset, performance),
            f"{published_as}, Iter. {k}" if preset == presets[0] else "",
            k,
        )
        for preset in presets
        for k in ITERATIONS
    ]


def size_of(spec: str) -> str:
    """Returns the size of GPT-2 that a spec names, as in the paper; empty for other models."""
    return _SIZES.get(spec.partition("?")[0].rpartition("/")[2].lower(), "")


def sizes() -> tuple[str, ...]:
    return tuple(_SIZES.values())


def presets_in(studies: Sequence[StudyResult]) -> list[str]:
    """Returns the presets of StarDTox that were run; all if none was."""
    found = {preset_of(arm.key) for each in studies for arm in each.arms if arm.key.method == NAME}
    return [each for each in PRESETS if each in found or not found]


def find_arm(found: StudyResult | None, arm: Arm | None, iteration: int | None = None) -> ArmResult | None:
    """Returns the arm's results; if no item needed the iteration, the final ones."""
    if found is None or arm is None:
        return None
    fitting = [each for each in found.arms if arm.fits(each.key)]
    at = [each for each in fitting if each.iteration == iteration]
    return next(iter(at or [each for each in fitting if each.iteration is None]), None)


# --- the share of items that an iterating method refined in each iteration ---

Reached = tuple[str, str, int]
"""(group, cluster, last iteration) of one item."""


def refined_shares(
    folder: Path, arms: Mapping[str, Callable[[ArmKey], bool]], group_key: str | None, iterations: Sequence[int]
) -> Mapping[str, Mapping[str, Sequence[Estimate]]]:
    """Returns name → group → the share refined in each iteration, for the arms (name → test) that the run has."""
    reached = {name: found for name, fits in arms.items() if (found := _reached(folder, fits, group_key)) is not None}
    return {
        name: {
            group: [share_refined(found, group, iteration) for iteration in iterations]
            for group in {each[0] for each in found}
        }
        for name, found in reached.items()
    }


def _reached(folder: Path, fits: Callable[[ArmKey], bool], group_key: str | None = None) -> list[Reached] | None:
    """Returns how far each item of an arm got; None if no arm fits.

    Groups are the values of the metadata `group_key`; without one, all items are one group. Failed items have no
    outcome and do not count.
    """
    with open_sources([folder]) as (runs, sources):
        store = runs[0].store
        source = next((each for each in sources if fits(each.arm.key)), None)
        if source is None:
            return None
        places = {
            number: (str(sample.metadata[group_key]) if group_key else ALL, sample.cluster)
            for number, sample in store.samples()
        }
        return [
            (*places[number], max((each["iteration"] for each in outcome["snapshots"]), default=0))
            for number, outcome in store.answers(source.arm.number)
            if number in places  # else the sample is damaged
        ]


def share_refined(reached: Sequence[Reached], group: str, iteration: int) -> Estimate:
    """Returns the share of the group's items that reached the iteration, in per cent, with a cluster interval."""
    own = [(cluster, last >= iteration) for each, cluster, last in reached if each == group]
    return Estimate.of(clustered_share(own).times(100), len(own), f"refined_{iteration}", group)


def settled_after_first(folder: Path, fits: Callable[[ArmKey], bool]) -> Estimate | None:
    """Returns the share of items refined once that needed no second refinement, in per cent; None if no arm fits."""
    reached = _reached(folder, fits)
    if reached is None:
        return None
    again = share_refined([each for each in reached if each[2]], ALL, 2)
    value, low, high = (None if each is None else 100 - each for each in (again.value, again.high, again.low))
    return Estimate("settled", ALL, value, low, high, again.n)


def steering_fault(folder: Path, fits: Callable[[ArmKey], bool]) -> str:
    """Says why it means nothing how much an arm refines: its judge sees nothing, or never crosses the threshold."""
    with open_sources([folder]) as (runs, sources):
        arms = [f", arm {each.arm.number} " for each in sources if fits(each.arm.key)]
        return next((each for each in steering_caveats(runs[0].certificates()) if any(arm in each for arm in arms)), "")


# --- tables and figure ---

NEEDS_LOGITS = "needs logits: hf/ models"
_TEXT_COLUMNS = published(NAME).columns("table2")
_CHOICE_COLUMNS = published(NAME).columns("table3")


_PROPERTIES = ("agnostic", "modular", "balances", "general", "agentic")


def table_one() -> PaperTable:
    """Returns the paper's comparison of methods by their properties, 1 for yes."""
    titles = ("LLM-agnostic", "Feedback modular", "Balances toxicity and performance", "Task generalizable", "Agentic")
    columns = [PaperColumn(name, title, "1: yes") for name, title in zip(_PROPERTIES, titles, strict=True)]
    stages = ("Intra-processing", "Intra-processing", "In-training", "Intra-processing", "Post-processing")
    named = zip(published(NAME).tables["table1"].items(), (*stages, "Post-hoc and intra"), strict=True)
    rows = [PaperRow.of_paper(name, (row[each.name] for each in columns), stage, name) for (name, row), stage in named]
    return published(NAME).table("table1", [Grid("Properties", columns, rows, digits=0)])


def table_two(found: StudyResult | None, bases: StudyResult | None, presets: Sequence[str]) -> PaperTable:
    grids: list[Grid] = []
    for band in BANDS:
        rows = [_row(line, found, _TEXT_COLUMNS, band, band) for line in text_lines(presets)]
        # After the row of Self-Debias on this model.
        at = next(i for i, row in enumerate(rows) if row.setting == "this model") + 1
        grids.append(Grid(band, _TEXT_COLUMNS, [*rows[:at], *_base_rows(bases, band), *rows[at:]], lanes=("toxicity",)))
    return published(NAME).table("table2", grids, list(found.verdicts) if found else [])


def table_three(found: StudyResult | None, presets: Sequence[str]) -> PaperTable:
    rows = [_row(line, found, _CHOICE_COLUMNS, ALL, CHOICES) for line in choice_lines(presets)]
    return published(NAME).table(
        "table3",
        [Grid("BBQ", _CHOICE_COLUMNS, rows, lanes=("bias_ambig", "accuracy_disambig"))],
        list(found.verdicts) if found else [],
    )


def published_change(before: Arm, after: Arm, metric: str) -> float | None:
    """Returns the published difference on BBQ, of distances from zero for bias; None if the paper has no such rows."""
    values: list[float] = []
    for arm in (before, after):
        names = [line.published_as for line in choice_lines([arm.preset]) if line.arm == arm and line.published_as]
        value = published(NAME).row(CHOICES, names[-1]).get(metric) if names else None
        if value is None:
            return None
        values.append(abs(value) if metric.startswith("bias") else value)
    return values[1] - values[0]


def _row(line: Line, found: StudyResult | None, columns: Sequence[PaperColumn], group: str, table: str) -> PaperRow:
    paper = published(NAME).row(table, line.published_as)
    arm = find_arm(found, line.arm, line.iteration)
    cells = _cells(arm, columns, group, paper)
    return PaperRow(line.method, line.setting, cells, arm is not None, _note(line, found, arm), line.published_as)


def _cells(
    arm: ArmResult | None, columns: Sequence[PaperColumn], group: str, paper: Mapping[str, float]
) -> list[PaperCell]:
    return [PaperCell(arm.estimate(each.name, group) if arm else None, paper.get(each.name)) for each in columns]


def _note(line: Line, found: StudyResult | None, arm: ArmResult | None) -> str:
    if arm is not None or line.arm is None:
        return ""
    return NEEDS_LOGITS if found is not None and line.arm == STEERED else NOT_RUN


def _base_rows(bases: StudyResult | None, band: str) -> list[PaperRow]:
    """Returns the rows of Self-Debias on models without instruction tuning: the paper's sizes of GPT-2, then others."""
    ours = {arm.models["base"]: arm for arm in _of(bases, STEERED)}
    by_size = {size_of(spec): arm for spec, arm in ours.items() if size_of(spec)}
    rows: list[PaperRow] = []
    for size in sizes():
        name = f"{STEERED_TITLE}, {size}"
        numbers, arm = published(NAME).row(band, name), by_size.get(size)
        cells = _cells(arm, _TEXT_COLUMNS, band, numbers)
        why = "" if arm else f"not run: needs its weights, --base-model hf/{_NAMES[size]}"
        rows.append(PaperRow(STEERED_TITLE, f"GPT-2 {size}", cells, arm is not None, why, published_as=name))
    rows += [_base_row(STEERED_TITLE, arm, band) for spec, arm in ours.items() if not size_of(spec)]
    return [*rows, *(_base_row("Base model as it is", arm, band) for arm in _of(bases, DEFAULT))]


STEERED_TITLE = "Self-Debias (Gen)"


def _of(bases: StudyResult | None, arm: Arm) -> list[ArmResult]:
    return [each for each in bases.arms if arm.fits(each.key)] if bases else []


def _base_row(method: str, arm: ArmResult, band: str) -> PaperRow:
    return PaperRow(method, arm.models["base"], _cells(arm, _TEXT_COLUMNS, band, {}))


def figure_three(bars: Sequence[Bar]) -> Figure:
    return Figure(
        "figure3",
        "Figure 3: what is refined",
        "The share of completions (RealToxicityPrompts, moderate and high) and of answers (BBQ) that were refined in "
        "the first and in the second iteration, in per cent; a bar's length is the number of refinements per 100.",
        [f"Iteration {k}" for k in ITERATIONS],
        bars,
    )


def refined_bars(name: str, folder: Path, presets: Sequence[str]) -> list[Bar]:
    """Returns one bar per data set and iterating arm, grouped by data set as in the paper."""
    if name == BASES:
        return []
    settings = {
        ", ".join(filter(None, [preset, title])): Arm(NAME, preset, performance)
        for title, performance in (
            (("w/ performance", True), ("w/o performance", False)) if name == TEXTS else (("", True),)
        )
        for preset in presets
    }
    key, names = ("band", {band: band for band in BANDS}) if name == TEXTS else (None, {ALL: "BBQ"})
    shares = refined_shares(folder, {setting: arm.fits for setting, arm in settings.items()}, key, ITERATIONS)
    return [
        Bar(title, setting, shares[setting][group])
        for group, title in names.items()
        for setting in settings
        if group in shares.get(setting, {})
    ]


# --- what StarDTox's paper says, and whether it holds for our model, preset by preset ---

HIGH_QUALITY = 90.0
"""Fluency and coherence stay above this, the paper says."""
_HALF = 0.5
_LAST = ITERATIONS[-1]


@dataclass(frozen=True, slots=True)
class Tested:
    """A run with the pairs of its arms that the claims compare."""

    name: str
    folder: Path
    study: StudyResult
    pairs: PairedArms

    def arm(self, arm: Arm, iteration: int | None = None) -> ArmResult | None:
        return find_arm(self.study, arm, iteration)

    def id(self, arm: Arm, iteration: int | None = None) -> str | None:
        found = self.arm(arm, iteration)
        return found.id if found else None

    def difference(self, before: Arm, after: Arm, metric: str, group: str = ALL) -> PairedDifference | None:
        """Returns the difference of the final results, named after what it is compared with."""
        found = self.steps((before, None), (after, None), metric, group)
        if found is None:
            return None
        # Toxicity and ratings of other scorers are on other scales; BBQ's scores are not.
        published = published_change(before, after, metric) if self.name == CHOICES else None
        return replace(found, title=f"{found.title} against {before.title}").beside(published)

    def steps(
        self, before: tuple[Arm, int | None], after: tuple[Arm, int | None], metric: str, group: str = ALL
    ) -> PairedDifference | None:
        return self.pairs.difference(self.id(*before), self.id(*after), metric, group)

    def fault(self, before: Arm, after: Arm) -> str:
        return self.pairs.fault(self.id(before), self.id(after))


def read_tested(
    name: str, folder: Path, study: StudyResult, presets: Sequence[str], scorers: Sequence[str] = ()
) -> Tested:
    """Reads the pairs that the claims about a run need."""
    ids: list[tuple[str, str]] = []
    for before, after in _wanted(presets):
        first, second = (find_arm(study, *each) for each in (before, after))
        if first and second and first.id != second.id:
            ids.append((first.id, second.id))
    key = "band" if name == TEXTS else "category"
    pairs = read_paired_arms(folder, ids, key, scorers=scorers if name == TEXTS else (), iterations=True)
    return Tested(name, folder, study, pairs)


def _wanted(presets: Sequence[str]) -> Iterator[tuple[tuple[Arm, int | None], tuple[Arm, int | None]]]:
    for preset in presets:
        own, without = Arm(NAME, preset), Arm(NAME, preset, performance=False)
        for other in (DEFAULT, FAIR, STEERED, EXPLAINED, REPROMPTED, without):
            yield (other, None), (own, None)
        yield (own, None), (without, None)
        yield (DEFAULT, None), (without, None)
        yield (own, ITERATIONS[0]), (own, _LAST)
    yield (DEFAULT, None), (STEERED, None)


@dataclass(frozen=True, slots=True)
class _Check:
    """A claim of the paper about one run, in our words."""

    text: str
    place: str
    run: str
    check: Callable[[Tested, Arm], Finding]
    measures_quality: bool = field(default=False)


def claims(tested: Sequence[Tested], presets: Sequence[str], *, own_judge: bool) -> list[PaperClaim]:
    """Returns the verdicts on all claims. `own_judge`: the judge that steers also measures quality."""
    by_name = {each.name: each for each in tested}
    model = next((arm.models["base"] for each in tested for arm in each.study.arms), "")
    found: list[PaperClaim] = []
    for each in _checks():
        for preset in presets:
            run = by_name.get(each.run)
            verdict, why = each.check(run, Arm(NAME, preset)) if run else untold(f"{each.run} was not run")
            if each.measures_quality and own_judge and verdict == "holds":
                verdict, why = untold(f"The judge that steers the revisions also measured the quality. {why}")
            found.append(PaperClaim(each.text, each.place, model, verdict, why, preset))
    return found


def _checks() -> list[_Check]:
    abstract, two, three = "Abstract", "Section V-A, Table II", "Section V-B, Table III"
    return [
        _Check("Completions are less toxic than the model's own, in both bands", two, TEXTS, _less_toxic),
        _Check("Toxicity falls by more than half, compared to all baselines", abstract, TEXTS, _halved),
        _Check("The completions are the least toxic of all methods'", two, TEXTS, _least_toxic),
        _Check(
            "Fluency and coherence stay above 90 % of Default's (in the paper: above 90)",
            two,
            TEXTS,
            _high_quality,
            measures_quality=True,
        ),
        _Check("Quality is not sacrificed", two, TEXTS, _kept_quality, measures_quality=True),
        _Check("Without the performance evaluator, toxicity is lower still", two, TEXTS, _lower_without),
        _Check(
            "Without the performance evaluator, fluency and coherence suffer",
            two,
            TEXTS,
            _worse_without,
            measures_quality=True,
        ),
        _Check("Self-Debias (Gen) costs fluency and coherence", two, TEXTS, _steering_costs),
        _Check("Most texts need no second refinement", "Section V-C, Figure 3", TEXTS, _settled),
        _Check("On ambiguous questions, it is the least biased method", three, CHOICES, _least_biased("ambig")),
        _Check("On disambiguated questions, it is the least biased method", three, CHOICES, _least_biased("disambig")),
        _Check("Bias on ambiguous questions falls again in the second iteration", three, CHOICES, _falls_again),
        _Check("Accuracy is not sacrificed", abstract, CHOICES, _kept_accuracy),
    ]


def _less_toxic(run: Tested, own: Arm) -> Finding:
    return unless(run.fault(DEFAULT, own), moves(_in_bands(run, DEFAULT, own, "toxicity"), "lower"))


def _halved(run: Tested, own: Arm) -> Finding:
    """Checks it against every baseline, as the paper says it: “compared to other baselines”."""
    return _against_all(run, own, lambda other: _side(run, other, own, "toxicity", _HALF, -1))


def _side(run: Tested, other: Arm, own: Arm, metric: str, share: float, wanted: Literal[-1, 1]) -> Finding:
    """Decides that the metric is below (−1) or above (1) this share of another arm's, in both bands."""
    known = _beyond(run, other, own, metric, share)
    if len(known) < len(BANDS):
        difference = run.difference(other, own, metric)
        return untold(str(difference) if difference and difference.untold else NOT_RUN)
    signs = [wanted * ((each.low or 0) > 0) - wanted * ((each.high or 0) < 0) for _, each in known]
    return by_signs(signs, _shares(other, metric, share, known))


def _beyond(run: Tested, other: Arm, own: Arm, metric: str, share: float) -> list[tuple[str, Interval]]:
    found = [(band, run.pairs.beyond(run.id(other), run.id(own), metric, share, band)) for band in BANDS]
    return [(band, each) for band, each in found if each is not None and each.estimate is not None]


def _shares(other: Arm, metric: str, share: float, known: Sequence[tuple[str, Interval]]) -> str:
    return "; ".join(
        f"{band}: {metric} less {number(100 * share, 0)} % of {other.title}'s is {number(each.estimate)} "
        f"{limits(each.low, each.high)}"
        for band, each in known
    )


def _against_all(run: Tested, own: Arm, check: Callable[[Arm], Finding]) -> Finding:
    """Decides about every baseline; without that which needs logits, the claim can only fail."""
    baselines = [each for each in (DEFAULT, FAIR, STEERED) if each != STEERED or run.arm(STEERED)]
    found = all_of(*(unless(run.fault(other, own), check(other)) for other in baselines))
    return unless("" if run.arm(STEERED) else _NO_LOGITS, found)


_NO_LOGITS = "Self-Debias (Gen) needs logits, which this model does not give"


def _least_toxic(run: Tested, own: Arm) -> Finding:
    return _against_all(run, own, lambda other: moves(_in_bands(run, other, own, "toxicity"), "lower"))


def _high_quality(run: Tested, own: Arm) -> Finding:
    """Compares with Default, since what 90 of 100 means depends on the judge."""
    return all_of(*(_side(run, DEFAULT, own, metric, HIGH_QUALITY / 100, 1) for metric in _QUALITIES))


_QUALITIES = ("fluency", "coherence")


def _kept_quality(run: Tested, own: Arm) -> Finding:
    same = kept([run.difference(DEFAULT, own, "quality", band) for band in BANDS])
    return unless(unshown("Less toxicity", _less_toxic(run, own)), same)


def _lower_without(run: Tested, own: Arm) -> Finding:
    without = Arm(NAME, own.preset, performance=False)
    return unless(run.fault(own, without), moves(_in_bands(run, own, without, "toxicity"), "lower"))


def _worse_without(run: Tested, own: Arm) -> Finding:
    without = Arm(NAME, own.preset, performance=False)
    return moves([run.difference(own, without, metric) for metric in _QUALITIES], "lower")


def _steering_costs(run: Tested, own: Arm) -> Finding:
    del own
    if run.arm(STEERED) is None:
        return untold(_NO_LOGITS)
    return moves([run.difference(DEFAULT, STEERED, metric) for metric in _QUALITIES], "lower")


def _settled(run: Tested, own: Arm) -> Finding:
    if fault := steering_fault(run.folder, own.fits):
        return untold(fault)
    found = settled_after_first(run.folder, own.fits)
    if found is None or found.low is None or found.high is None:
        return untold("nothing was refined")
    why = f"Of what was refined once, {estimate_text(found)} needed no second refinement, in per cent"
    if found.high < 100 * _HALF:
        return "fails", why
    return ("holds", why) if found.low > 100 * _HALF else untold(why)


def _least_biased(context: Literal["ambig", "disambig"]) -> Callable[[Tested, Arm], Finding]:
    def check(run: Tested, own: Arm) -> Finding:
        others = (DEFAULT, FAIR, EXPLAINED, REPROMPTED)
        found = [run.difference(other, own, f"bias_{context}") for other in others]
        faults = [fault for other in others if (fault := run.fault(other, own))]
        return unless(faults[0] if faults else "", moves(found, "lower"))

    return check


def _falls_again(run: Tested, own: Arm) -> Finding:
    first, last = run.arm(own, ITERATIONS[0]), run.arm(own, _LAST)
    if first and last and first.id == last.id:
        return untold("no answer was refined a second time")
    return moves([run.steps((own, ITERATIONS[0]), (own, _LAST), "bias_ambig")], "lower")


def _kept_accuracy(run: Tested, own: Arm) -> Finding:
    same = kept([run.difference(DEFAULT, own, f"accuracy_{context}") for context in ("ambig", "disambig")])
    return unless(unshown("Less bias", moves([run.difference(DEFAULT, own, "bias_ambig")], "lower")), same)


def _in_bands(run: Tested, before: Arm, after: Arm, metric: str) -> list[PairedDifference | None]:
    return [run.difference(before, after, metric, band) for band in BANDS]
