"""A study such as a real BBQ run gives: three arms, eleven categories, a stopped arm, refusals, no prices."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from sample_traces import samples

from evenhand.core.types import Status, Usage
from evenhand.runs.plan import ArmKey
from evenhand.studies.results import (
    ArmResult,
    Effect,
    Estimate,
    Finding,
    MetricInfo,
    PositionBias,
    StudyResult,
)

__all__ = ["GROUPS", "METRICS", "samples", "study"]

GROUPS = (
    "Age",
    "Disability_status",
    "Gender_identity",
    "Nationality",
    "Physical_appearance",
    "Race_ethnicity",
    "Race_x_SES",
    "Race_x_gender",
    "Religion",
    "SES",
    "Sexual_orientation",
)
METRICS = (
    MetricInfo("bias_ambig", "Bias score, ambiguous", "zero", share=False),
    MetricInfo("bias_disambig", "Bias score, disambiguated", "zero", share=False),
    MetricInfo("accuracy_ambig", "Accuracy, ambiguous", "higher", share=True),
    MetricInfo("accuracy_disambig", "Accuracy, disambiguated", "higher", share=True, chance=100 / 3),
    MetricInfo("unknown", "Answers “unknown”", None, share=True),
    MetricInfo("coverage", "Coverage", "higher", share=True),
)
_LEVELS = {
    "default": {"bias_ambig": 18.6, "bias_disambig": 5.2, "accuracy_ambig": 58.4, "accuracy_disambig": 88.1},
    "fair_prompt": {
        "bias_ambig": 6.9,
        "bias_disambig": 4.1,
        "accuracy_ambig": 83.0,
        "accuracy_disambig": 79.3,
    },
    "cot": {"bias_ambig": 11.2, "bias_disambig": 3.0, "accuracy_ambig": 73.6, "accuracy_disambig": 90.4},
}
_UNKNOWN = {"default": 32.0, "fair_prompt": 51.8, "cot": 39.5}
_COVERAGE = {"default": 99.1, "fair_prompt": 97.4, "cot": 95.2}
_SAMPLES = 1320
_STATUSES: dict[str, dict[Status, int]] = {
    "default": {"graded": 1308, "refused": 9, "unscored": 3, "failed": 0},
    "fair_prompt": {"graded": 1286, "refused": 27, "unscored": 5, "failed": 2},
    "cot": {"graded": 1180, "refused": 11, "unscored": 41, "failed": 7},
}
_REASONS: dict[str, list[tuple[Status, str, int]]] = {
    "default": [
        ("refused", "the model declined to answer", 9),
        ("unscored", "no option letter in the output", 3),
    ],
    "fair_prompt": [
        ("refused", "the model declined to answer", 27),
        ("unscored", "two option letters in the output", 5),
        ("failed", "HTTP 503 after 5 attempts", 2),
    ],
    "cot": [
        ("unscored", "the output ended (length) before an answer", 33),
        ("refused", "the model declined to answer", 11),
        ("unscored", "no option letter in the output", 8),
        ("failed", "the request timed out after 120 s", 7),
    ],
}
_USAGES = {
    "default": {"base": Usage(1320, 187_440, 3_960, 0, 2, 0.0)},
    "fair_prompt": {"base": Usage(1320, 262_680, 4_125, 318, 14, 0.0487)},
    "cot": {
        "base": Usage(1239, 199_102, 241_310, 0, 21, 0.31),
        "reader": Usage(1232, 398_211, 3_696, 96, 0, None),
    },
}
_COUNTS = {"default": (512, 421, 375), "fair_prompt": (441, 428, 417), "cot": (398, 402, 380)}
_POSITION_BIAS = {"default": (0.0004, 0.058), "fair_prompt": (0.71, 0.0096), "cot": (0.72, 0.011)}


def estimates(arm: str, rng: random.Random) -> list[Estimate]:
    levels = {**_LEVELS[arm], "unknown": _UNKNOWN[arm], "coverage": _COVERAGE[arm]}
    found: list[Estimate] = []
    for metric in METRICS:
        n_all = 660 if "ambig" in metric.name else _SAMPLES
        half = 3.4 if not metric.share else 2.6
        level = levels[metric.name]
        found.append(_estimate(metric, "all", level, half, n_all))
        for group in GROUPS:
            value = level + rng.gauss(0, 6 if not metric.share else 4)
            found.append(_estimate(metric, group, value, half * rng.uniform(2.4, 4.2), n_all // len(GROUPS)))
    return [_undefined(e) if _is_undefined(arm, e) else e for e in found]


def _estimate(metric: MetricInfo, group: str, value: float, half: float, n: int) -> Estimate:
    low, high = value - half, value + half
    if metric.share:
        value, low, high = (min(100.0, max(0.0, v)) for v in (value, low, high))
    return Estimate(metric.name, group, value, low, high, n)


def _is_undefined(arm: str, estimate: Estimate) -> bool:
    return (arm, estimate.metric, estimate.group) == ("fair_prompt", "bias_ambig", "Sexual_orientation")


def _undefined(estimate: Estimate) -> Estimate:
    return replace(estimate, value=None, low=None, high=None)


def arm(name: str, rng: random.Random) -> ArmResult:
    reader = {"reader": "local/qwen2.5-3b"} if name == "cot" else {}
    return ArmResult(
        id=f"{name}-0",
        label=name,
        key=ArmKey(name, {}, {"base": "openai/gpt-4o-mini", **reader}, 0),
        estimates=estimates(name, rng),
        statuses=_STATUSES[name],
        pending=81 if name == "cot" else 0,
        reasons=_REASONS[name],
        usage=_USAGES[name],
        seconds={"default": 214.0, "fair_prompt": 251.3, "cot": 2951.0}[name],
        position=PositionBias(_COUNTS[name], *_POSITION_BIAS[name]),
        confusion=confusion(name),
    )


def confusion(name: str) -> dict[str, dict[str, int]]:
    rows = {
        "default": ((385, 168, 98, 9), (41, 292, 18, 3), (26, 20, 256, 3)),
        "fair_prompt": ((548, 62, 38, 20), (61, 268, 12, 7), (70, 11, 221, 7)),
        "cot": ((441, 92, 60, 11), (17, 284, 9, 30), (14, 12, 251, 18)),
    }
    kinds = ("unknown", "stereotyped", "anti_stereotyped")
    given = (*kinds, "unscored" if name == "cot" else "refused")
    return {kind: dict(zip(given, row, strict=True)) for kind, row in zip(kinds, rows[name], strict=True)}


def effects() -> list[Effect]:
    rows = [
        ("fair_prompt", "bias_ambig", -11.7, -15.1, -8.2, 642, 0.0001, 0.0002, 4.9, "fell"),
        ("cot", "bias_ambig", -7.1, -11.6, -2.4, 588, 0.004, 0.006, 6.4, "fell"),
        ("fair_prompt", "bias_disambig", -1.1, -4.4, 2.3, 644, 0.51, 0.61, 4.8, "undecided"),
        ("cot", "bias_disambig", -2.4, -6.0, 1.3, 592, 0.21, 0.32, 5.2, "undecided"),
        ("fair_prompt", "accuracy_ambig", 24.3, 21.0, 27.7, 642, 0.0, 0.0, 4.1, "rose"),
        ("cot", "accuracy_ambig", 14.9, 11.1, 18.6, 588, 0.0, 0.0, 4.4, "rose"),
        ("fair_prompt", "accuracy_disambig", -8.7, -11.9, -5.6, 644, 0.0001, 0.0002, 4.0, "fell"),
        ("cot", "accuracy_disambig", 2.2, -0.6, 5.0, 592, 0.12, 0.17, 3.9, "undecided"),
        ("fair_prompt", "unknown", 19.7, 17.2, 22.3, 1286, 0.0, 0.0, 3.2, "rose"),
        ("cot", "unknown", None, None, None, 0, None, None, None, "undecided"),
    ]
    whole = [_effect(*row[:2], "all", *row[2:]) for row in rows]
    return whole + [
        _effect("fair_prompt", "bias_ambig", g, -10.0 + i, -24.0 + i, 4.0 + i, 58, 0.2, 0.44, 18.0, "undecided")
        for i, g in enumerate(GROUPS)
    ]


def _effect(after: str, metric: str, group: str, *values: Any) -> Effect:
    difference, low, high, n, p, p_adjusted, detectable, direction = values
    test = "exact McNemar" if metric.startswith("accuracy") else "cluster permutation"
    return Effect(
        "default-0",
        f"{after}-0",
        metric,
        group,
        difference,
        low,
        high,
        n,
        p,
        p_adjusted,
        "Holm",
        test,
        detectable,
        direction,
    )


def study() -> StudyResult:
    rng = random.Random(7)
    return StudyResult(
        title="Does a fairness prompt or thinking aloud lower bias on BBQ?",
        benchmark="bbq",
        headline="bias_ambig",
        guardrails=("accuracy_ambig", "accuracy_disambig", "unknown"),
        metrics=METRICS,
        groups=GROUPS,
        arms=[arm(name, rng) for name in ("default", "fair_prompt", "cot")],
        effects=effects(),
        findings=[
            Finding(
                "worse",
                "fair_prompt is wrong in 21 % of the cases where the text gives the answer; default 12 %",
                "fair_prompt",
                "accuracy_disambig",
                ("default-0", "fair_prompt-0"),
                "Accuracy, disambiguated: difference −8.7 [−11.9, −5.6].",
            ),
            Finding(
                "better",
                "cot gives 5 more answers with the stereotype than against it; default 12 more",
                "cot",
                "bias_ambig",
                ("default-0", "cot-0"),
                "Bias, ambiguous: difference −7.1 [−11.6, −2.4].",
            ),
        ],
        warnings=[
            "The arm cot was stopped: 81 of 1,320 samples have not been run.",
            "cot left 41 samples unscored (3.3%), most of them because the output ended before an answer.",
        ],
        provenance=provenance(),
    )


def provenance() -> dict[str, Any]:
    return {
        "plan": {
            "benchmark": "bbq",
            "limit": 1320,
            "seed": 0,
            "arms": [
                {"method": m, "models": {"base": "openai/gpt-4o-mini"}} for m in ("default", "fair_prompt", "cot")
            ],
        },
        "evenhand": "0.1.0",
        "python": "3.11.7",
        "benchmark_fingerprint": {"name": "bbq", "version": "1", "data_sha256": "9f2b6c0e" * 8},
        "prompts": {
            "bbq/ask": "5d41402abc4b2a76",
            "fair_prompt/instruct": "7d793037a0760186",
            "cot/think": "e4da3b7fbbce2345",
        },
        "started": "2026-02-11T09:14:03Z",
        "resumed": True,
        "store": None,
    }
