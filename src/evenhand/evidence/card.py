"""A section for a model card, with the results as `model-index` metadata, in the Hugging Face format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from evenhand.core.format import count, interval
from evenhand.core.notebook import clean
from evenhand.core.version import own_version
from evenhand.evidence.facts import RunFacts
from evenhand.show.view import view_of

if TYPE_CHECKING:
    from evenhand.evidence import Pack


def render(pack: Pack) -> str:
    """Return front matter and section; put the first into the card's header, the second into its text."""
    header = yaml.safe_dump({"model-index": _index(pack)}, sort_keys=False, allow_unicode=True)
    lines = [
        "## Bias, Risks, and Limitations",
        "",
        f"Measured with Evenhand {own_version()} on {pack.made[:10]}. Values have 95 % intervals.",
        "",
        "| Benchmark | Method | Metric | Value | Samples |",
        "|---|---|---|---|---|",
        *(line for run in pack.runs for line in _rows(run)),
        "",
        *(f"- {_cell(sentence)}" for run in pack.runs for sentence in run.study.verdicts),
        "",
        "### Limits of this evaluation",
        "",
        *(f"- {_cell(limit)}" for limit in pack.limits),
    ]
    return f"---\n{header}---\n\n" + "\n".join(lines) + "\n"


def _rows(run: RunFacts) -> list[str]:
    view = view_of(run.study)
    return [
        f"| {_cell(run.study.benchmark)} | {_cell(arm.method)} | {_cell(view.info(name).title)} | "
        f"{interval(found.value, found.low, found.high, view.digits.get(name, 1))} | {count(found.n)} |"
        for arm in run.arms
        for name in run.main_metrics
        if (found := arm.estimate(name)) is not None and found.value is not None
    ]


def _cell(text: str) -> str:
    return " ".join(clean(text).split()).replace("|", "\\|")


def _index(pack: Pack) -> list[dict[str, Any]]:
    by_model: dict[str, list[dict[str, Any]]] = {}
    for run in pack.runs:
        view = view_of(run.study)
        for arm in run.arms:
            metrics = [
                {"type": name, "name": view.info(name).title, "value": round(found.value, 4)}
                for name in run.main_metrics
                if (found := arm.estimate(name)) is not None and found.value is not None
            ]
            if metrics:
                by_model.setdefault(arm.models["base"], []).append(
                    {
                        "task": {"type": "text-generation", "name": f"{run.study.benchmark}, method {arm.method}"},
                        "dataset": {"name": run.data.title, "type": run.data.name},
                        "metrics": metrics,
                    }
                )
    return [{"name": model, "results": results} for model, results in by_model.items()]
