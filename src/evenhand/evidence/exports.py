"""A pack for other tools: a section for a model card, and documents in the schema of Every Eval Ever.

The section has the results as `model-index` metadata, in the Hugging Face format; Every Eval Ever, version 0.3.0, has
one document for each arm of a run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import yaml

from evenhand.core.format import count
from evenhand.core.version import own_version
from evenhand.evidence.facts import RunFacts
from evenhand.models.base import split_spec
from evenhand.show.table import Content, Table, columns, markdown, markdown_text, measured
from evenhand.show.view import view_of
from evenhand.studies.results import ArmResult, Estimate, MetricInfo

if TYPE_CHECKING:
    from evenhand.evidence import Pack

SCHEMA_VERSION = "0.3.0"
_DIRECTIONS = {"higher": "higher", "lower": "lower", "zero": "closest to 0"}


# --- model card ---


def model_card(pack: Pack) -> str:
    """Return front matter and section; put the first into the card's header, the second into its text."""
    header = yaml.safe_dump({"model-index": _index(pack)}, sort_keys=False, allow_unicode=True)
    verdicts = [sentence for run in pack.runs for sentence in run.study.verdicts]
    lines = [
        "## Bias, Risks, and Limitations",
        "",
        f"Measured with Evenhand {own_version()} on {pack.made[:10]}. Values have 95 % intervals.",
        "",
        markdown(_results(pack)),
        *(f"- {markdown_text(sentence)}" for sentence in verdicts),
        "",
        "### Limits of this evaluation",
        "",
        *(f"- {markdown_text(limit)}" for limit in pack.limits),
    ]
    return f"---\n{header}---\n\n" + "\n".join(lines) + "\n"


def _results(pack: Pack) -> Table:
    several = len({arm.models["base"] for run in pack.runs for arm in run.arms}) > 1
    rows: list[list[Content]] = [
        [
            *([arm.models["base"]] if several else []),
            run.study.benchmark,
            arm.method,
            view_of(run.study).info(name).title,
            measured(found.value, found.low, found.high, run.study.digits(name), n=found.n),
            count(found.n),
        ]
        for run in pack.runs
        for arm in run.arms
        for name in run.main_metrics
        if (found := arm.estimate(name)) is not None and found.value is not None
    ]
    heads = [*(["Model"] if several else []), "Benchmark", "Method", "Metric", "Value", "Samples"]
    return Table("Results", columns(*heads, words=len(heads) - 2), rows)


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


# --- Every Eval Ever ---


def documents(pack: Pack) -> dict[str, dict[str, Any]]:
    """File name → document."""
    found: dict[str, dict[str, Any]] = {}
    seconds = str(int(datetime.fromisoformat(pack.made).timestamp()))
    for run in pack.runs:
        for number, arm in enumerate(run.arms, 1):
            results = [each for name in run.main_metrics if (each := _evaluation(run, arm, name)) is not None]
            if results:
                found[f"{run.name}-{number}.json"] = _document(run, arm, results, seconds)
    return found


def _document(run: RunFacts, arm: ArmResult, results: list[dict[str, Any]], seconds: str) -> dict[str, Any]:
    model = _model(run, arm.models["base"])
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{run.study.benchmark}/{model['id']}/{seconds}",
        "evaluation_timestamp": str(run.provenance.get("created") or ""),
        "retrieved_timestamp": seconds,
        "source_metadata": {
            "source_name": "Evenhand run",
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
            "additional_details": {"run": run.name, "identity": str(run.provenance.get("identity", ""))},
        },
        "eval_library": {
            "name": "evenhand",
            "version": str(run.provenance.get("versions", {}).get("evenhand", "unknown")),
        },
        "model_info": model,
        "evaluation_results": results,
    }


def _model(run: RunFacts, spec: str) -> dict[str, Any]:
    about: Mapping[str, Any] = next(
        (each for each in run.provenance.get("models", ()) if each.get("spec") == spec), {"spec": spec}
    )
    provider, name = split_spec(spec)
    local = provider in ("local", "hf")
    engine = str(about.get("engine", "")).partition(" ")
    return {
        "name": name,
        "id": name if name.count("/") == 1 else spec,
        **({"inference_engine": {"name": engine[0], "version": engine[2] or "unknown"}} if engine[0] else {}),
        **({} if local else {"inference_platform": provider}),
        "additional_details": {
            "deployment_type": "self_deployed" if local else "unknown",
            "model_availability": "open_weights" if local else "unknown",
            **{key: str(value) for key, value in about.items() if value not in (None, {}, "") and key != "engine"},
        },
    }


def _evaluation(run: RunFacts, arm: ArmResult, name: str) -> dict[str, Any] | None:
    info, found = view_of(run.study).info(name), arm.estimate(name)
    if found is None or found.value is None or not math.isfinite(found.value):
        return None
    return {
        "evaluation_result_id": f"{run.study.benchmark}/{arm.method}/{arm.seed}/{name}",
        "evaluation_name": run.study.benchmark,
        "source_data": _source(run),
        "metric_config": _metric(run, info),
        "score_details": {"score": found.value, "uncertainty": _uncertainty(found)},
        "generation_config": {
            "additional_details": {
                "method": arm.method,
                "seed": str(arm.seed),
                **{f"model_{role}": spec for role, spec in arm.models.items()},
                **{f"prompt {prompt}": digest for prompt, digest in run.prompts.items()},
            }
        },
    }


def _source(run: RunFacts) -> dict[str, Any]:
    details = {"version": run.data.version, "samples": str(run.data.samples), "licence": run.data.licence}
    details |= {f"sha256 {file}": digest for file, digest in run.data.sha256.items()}
    if run.data.source.startswith("http"):
        kind: dict[str, Any] = {"source_type": "url", "url": [run.data.source]}
    else:
        kind = {"source_type": "other"}
    return {"dataset_name": run.data.name, **kind, "additional_details": details}


def _metric(run: RunFacts, info: MetricInfo) -> dict[str, Any]:
    return {
        "evaluation_description": run.data.about,
        "metric_id": f"evenhand.{run.study.benchmark}.{info.name}",
        "metric_name": info.title,
        "metric_unit": "percent" if info.share else "points",
        # The schema knows two directions; a metric that is best at 0 is said to be so in its details.
        "lower_is_better": info.better in ("lower", "zero"),
        "score_type": "continuous",
        **(
            {"min_score": 0.0, "max_score": 100.0}
            if info.share or info.rating
            else {"min_score": None, "max_score": None}
        ),
        "additional_details": {"best": _DIRECTIONS.get(info.better or "", "no direction")},
    }


def _uncertainty(found: Estimate) -> dict[str, Any]:
    limits = (found.low, found.high)
    if any(each is None or not math.isfinite(each) for each in limits):
        return {"num_samples": found.n}
    method = "clustered interval (Wilson at the effective sample size, or jackknife with Student's t)"
    return {
        "confidence_interval": {
            "lower": found.low,
            "upper": found.high,
            "confidence_level": 0.95,
            "method": method,
        },
        "num_samples": found.n,
    }
