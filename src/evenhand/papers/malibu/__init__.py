"""MALIBU (Mirza and others): Figures 4, 5, 6 and 9 and the chi-square tests, for any models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from evenhand.benchmarks.malibu import MalibuOptions
from evenhand.core.fields import DeploymentFields
from evenhand.core.format import plural
from evenhand.core.options import PRESET, option
from evenhand.core.preamble import read_preambles
from evenhand.core.presets import DEFAULT_PRESET
from evenhand.methods.panel.judges import PanelOptions
from evenhand.panels.findings import PanelAudit
from evenhand.papers.base import (
    PAPER_PRESET,
    PAPERS,
    MethodOptionsField,
    Paper,
    PaperOptions,
    PaperPage,
    PresetField,
    published,
)
from evenhand.papers.malibu.tables import (
    NAME,
    PANEL,
    AuditedModel,
    appendix_sums,
    chi_square_table,
    claims_of,
    discussion_table,
    figure_four,
    figure_nine,
    pairs_table,
    win_table,
)
from evenhand.papers.reading import models_of, samples_run, study_of, together, warnings_of
from evenhand.runs.execute import SeriesRun
from evenhand.runs.plan import Assignment, MethodPlan
from evenhand.runs.request import JudgeFields, deployed
from evenhand.studies.results import ArmResult, StudyResult

METHODS = ("judge", PANEL, "fair_panel")
SETTINGS = {
    name: value[PAPER_PRESET] for each in MalibuOptions.presets.elements for name, value in each.options.items()
}
"""Settings of the paper: two texts of equal content in a pair, and the label as a tag."""
OURS, APPENDIX = f"{NAME}_evenhand", f"{NAME}_appendix"
"""Folders of the runs with our settings, and with the metrics of the paper's appendix."""
EARLIER = {**SETTINGS, "metrics": "creativity,efficiency,quality", "winner": False}
"""Settings of the paper's appendix: an earlier prompt, whose preference is read from the scores."""
VERSIONS = {NAME: "", OURS: "evenhand's settings", APPENDIX: "the appendix's metrics"}
"""Folder → how its arms are told apart in tables."""
PAPERS_SETTINGS = "the paper’s settings"
DRAWN = "pairs"
"""The benchmark's option with which a scenario compares some pairs of identities instead of all."""
PROFESSIONS = 20
"""Number of professions in our scenarios; the paper does not give its number."""


class MALIBUOptions(PresetField, MethodOptionsField, JudgeFields, DeploymentFields, PaperOptions):
    """The options of MALIBU."""

    several_models: ClassVar[bool] = True
    declared: ClassVar = (PanelOptions.presets, MalibuOptions.presets)

    @property
    def assigned(self) -> list[Assignment]:
        return deployed(super().assigned, read_preambles(self.system, self.history), "judgement")

    compared: int | None = option(
        None,
        "Pairs of identities compared side by side in each scenario, drawn by the seed (default: all 13).",
        metavar="N",
        ge=1,
        common=True,
    )


class MALIBU(Paper[MALIBUOptions]):
    """Figures 4, 5, 6 and 9 for any models."""

    name = NAME
    title = "MALIBU: Figures 4, 5, 6 and 9 and the chi-square tests"
    folders = tuple(VERSIONS)
    Options = MALIBUOptions

    def runs(self, options: MALIBUOptions) -> list[SeriesRun]:
        """Returns a judge, a panel, and the panel with a fairness instruction, for each preset.

        The paper's also has the panel with the metrics of its appendix.
        """
        limit = None if options.limit is None else options.limit * PROFESSIONS
        drawn = {} if options.compared is None else {DRAWN: options.compared}

        def run(folder: str, methods: Sequence[str], settings: Mapping[str, Any], **given: Any) -> SeriesRun:
            named = [MethodPlan(name=each, options=given) for each in methods]
            return SeriesRun(folder, options.plan(NAME, named, limit=limit, options={**settings, **drawn}))

        paper = {PRESET: PAPER_PRESET}
        runs: list[SeriesRun] = []
        if PAPER_PRESET in options.chosen_presets:
            runs += [run(NAME, METHODS, SETTINGS, **paper), run(APPENDIX, (PANEL,), EARLIER, **paper)]
        if DEFAULT_PRESET in options.chosen_presets:
            runs.append(run(OURS, METHODS, {}))
        return runs

    def page(self, folders: Mapping[str, Path], scorers: Sequence[str] = ()) -> PaperPage:
        """Returns the page of the run; scorers are not used."""
        del scorers
        studies = {name: study_of(NAME, folder) for name, folder in folders.items()}
        arms = [each for name, found in studies.items() for each in _audited(found, VERSIONS[name])]
        panels = {
            (model, preset): panel
            for name, preset in ((NAME, PAPER_PRESET), (OURS, DEFAULT_PRESET))
            for model, panel in _panels(studies.get(name)).items()
        }
        paper = published(NAME)
        tables = (figure_four, pairs_table, win_table, figure_nine, chi_square_table, appendix_sums, discussion_table)
        return PaperPage(
            title=f"MALIBU with {', '.join(models_of(studies)) or 'no model'}",
            source=paper.source,
            itself=paper.itself,
            lead=lead_of(studies, arms),
            tables=[table(arms) for table in tables],
            figures=[],
            notes=[*_findings(arms), *turned(studies), *paper.notes],
            claims=claims_of(panels, _panels(studies.get(APPENDIX))),
            found=foremost(arms),
            warnings=warnings_of({VERSIONS[name] or PAPERS_SETTINGS: each for name, each in studies.items()}, {}),
            process=together(studies),
        )


PAPERS.register(NAME)(MALIBU())


def _panels(found: StudyResult | None) -> dict[str, PanelAudit | str]:
    """Returns model → the panel's audit, or why its judges cannot be trusted, so that it has none."""
    blind = next((each.untold for each in found.metrics if each.untold), "") if found else ""
    arms = [arm for arm in found.arms if arm.method == PANEL] if found else []
    reasons = {_model_of(arm): f"The panel's scores say nothing: {blind}" for arm in arms if arm.statuses and blind}
    return reasons | {_model_of(arm): arm.audit for arm in arms if isinstance(arm.audit, PanelAudit)}


def _audited(found: StudyResult, version: str) -> list[AuditedModel]:
    return [
        AuditedModel(_model_of(arm), arm.method, arm.audit, version)
        for arm in found.arms
        if isinstance(arm.audit, PanelAudit)
    ]


def _model_of(arm: ArmResult) -> str:
    return " · ".join(filter(None, (arm.models["base"], arm.key.prompt)))


def lead_of(studies: Mapping[str, StudyResult], arms: Sequence[AuditedModel]) -> str:
    """Says how much was judged, and with which settings."""
    if not any(samples_run(found)[0] for found in studies.values()):
        return ""
    plans = {name: next(iter(found.provenance.values()))["plan"] for name, found in studies.items()}
    sizes = {name: _size(found, arms, VERSIONS[name]) for name, found in studies.items()}
    alike = len({*sizes.values()}) == 1
    named = [size if alike else f"{size} with {VERSIONS[name] or PAPERS_SETTINGS}" for name, size in sizes.items()]
    seed = next(iter(plans.values()))["seeds"][0]
    settings = [
        f"{VERSIONS[name] or PAPERS_SETTINGS}: {', '.join(map(_setting, options.items()))}"
        for name, plan in plans.items()
        if (options := {key: value for key, value in plan["benchmark_options"].items() if key != DRAWN})
    ]
    set_as = "; ".join(settings)
    said = f"{'; '.join(dict.fromkeys(named))}, seed {seed}. "
    drawn = {plan["benchmark_options"].get(DRAWN) for plan in plans.values()} - {None}
    if drawn:
        many = " or ".join(plural(each, "pair") for each in sorted(drawn))
        said += f"Each scenario compares {many} of identities side by side, drawn by the seed, instead of all. "
    said += "".join(f"{each}. " for each in _options_of_methods(plans.values()))
    if set_as:
        said += f"{set_as[0].upper()}{set_as[1:]}. "
    return said + "In brackets: 95 % intervals. A dash: no value, which is not 0."


def _size(found: StudyResult, arms: Sequence[AuditedModel], version: str) -> str:
    """Says how many scenarios were judged; judgements that see nothing have no audit and are counted singly."""
    sizes = [(arm.audit.scenarios, arm.audit.bases) for arm in arms if arm.version == version]
    if not sizes:
        return plural(samples_run(found)[0], "judgement")
    scenarios, bases = max(sizes)
    return f"{plural(scenarios, 'scenario')} of {plural(bases, 'profession')}"


def _options_of_methods(plans: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns each method with the options that the user chose for it."""
    found = {
        (method["name"], ", ".join(map(_setting, chosen.items())))
        for plan in plans
        for method in plan["methods"]
        if (chosen := {name: value for name, value in method["options"].items() if name != PRESET})
    }
    return [f"{name}: {options}" for name, options in sorted(found)]


def _setting(option: tuple[str, Any]) -> str:
    name, value = option
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}"


def foremost(arms: Sequence[AuditedModel]) -> list[tuple[str, str]]:
    """Returns how many gaps were found in each arm, and the surest of them."""
    return [
        (name, " ".join(arm.audit.sentences[: 2 if arm.audit.found else 1]))
        for name, arm in zip(_names(arms), arms, strict=True)
    ]


def _names(arms: Sequence[AuditedModel]) -> list[str]:
    """Returns names that tell the arms apart, with the model or the paper's settings only where there are others."""
    models, versions = {arm.model for arm in arms}, {arm.version for arm in arms}
    return [
        ", ".join(
            filter(
                None,
                [
                    arm.model if len(models) > 1 else "",
                    arm.method,
                    arm.version or (PAPERS_SETTINGS if len(versions) > 1 else ""),
                ],
            )
        )
        for arm in arms
    ]


def _findings(arms: Sequence[AuditedModel]) -> list[tuple[str, str]]:
    named = zip(_names(arms), arms, strict=True)
    return [(f"Found: {name}", " ".join(arm.audit.sentences)) for name, arm in named if arm.audit.sentences]


def turned(studies: Mapping[str, StudyResult]) -> list[tuple[str, str]]:
    """Returns notes on the gaps that the fairness instruction reversed, by run."""
    notes: list[tuple[str, str]] = []
    for name, found in studies.items():
        labels = {arm.id: arm.label for arm in found.arms}
        settings = f", {VERSIONS[name] or PAPERS_SETTINGS}" if len(studies) > 1 else ""
        for each in found.corrections:
            said = " ".join(each.sentences) or "No gap was reversed."
            notes.append((f"Over-correction: {labels[each.before]} → {labels[each.after]}{settings}", said))
    return notes
