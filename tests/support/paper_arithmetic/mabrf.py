"""What the MABRF paper's tables say about themselves: facts with their arithmetic, from the published numbers alone."""

from __future__ import annotations

from statistics import fmean

from evenhand.core.format import number, signed
from evenhand.papers.base import published
from evenhand.papers.mabrf.tables import NAME, SEARCHED

_QUESTIONS = 55
"""Questions of each context, and 10 of each category."""


def itself() -> list[tuple[str, str]]:
    """Returns (place, statement)."""
    return [*_table_three(), *_table_five(), _abstract(), _table_four()]


def _table_three() -> list[tuple[str, str]]:
    three, again = published(NAME).tables["table3"], published(NAME).tables["recomputed"]["GPT-4, without search"]
    row, searched = three["GPT-4, without search"], three["GPT-4, with search"]
    same = [name for name, value in three["GPT-3.5, without search"].items() if row[name] == value]
    by_three = sum(round(_QUESTIONS * row[f"accuracy_{context}"] / 100) for context in ("ambig", "disambig"))
    by_five = round(sum(column("accuracy", "GPT-4")) / 10)
    recomputed = sum(round(_QUESTIONS * again[f"accuracy_{context}"] / 100) for context in ("ambig", "disambig"))
    repeats = [each for each in three.values() if abs(each["legacy_bias_ambig"] - each["accuracy_ambig"] + 100) < 1e-6]
    gain = searched["accuracy_ambig"] - round(again["accuracy_ambig"])
    return [
        (
            "Table 3, GPT-4 without search",
            f"{len(same)} of {len(row)} numbers are those of GPT-3.5's row. They make {by_three} right answers of "
            f"{2 * _QUESTIONS}; Table 5 has {by_five}. From the authors' logged answers: ambiguous "
            f"{again['accuracy_ambig'] / 100:.3f} and {_minus(again['legacy_bias_ambig'])}, disambiguated "
            f"{again['accuracy_disambig'] / 100:.3f} and {_minus(again['legacy_bias_disambig'])}, {recomputed} right. "
            f"With search it is {searched['accuracy_ambig'] / 100:.2f}, so the gain by search on ambiguous questions "
            f"is {number(gain, 0)} points; by the printed row it is "
            f"{signed(searched['accuracy_ambig'] - row['accuracy_ambig'], 0)}.",
        ),
        (
            "Table 3, bias on ambiguous questions",
            f"BIAS₁ is ACC₁ − 1 in {len(repeats)} of {len(three)} rows: the error rate with a minus.",
        ),
    ]


def _table_five() -> list[tuple[str, str]]:
    five, originals = published(NAME).tables["table5"], published(NAME).tables["originals"]
    counts = [
        sum(abs(row[f"legacy_bias{end}"] - row[f"accuracy{end}"] + 100) < 1e-6 for row in five.values())
        for end in ("", SEARCHED)
    ]
    impossible = [
        name
        for name, row in five.items()
        for end in ("", SEARCHED)
        for right, bias in (("first_accuracy", "legacy_bias_before"), ("accuracy", "legacy_bias"))
        if abs(row[f"{bias}{end}"]) > 100 - row[f"{right}{end}"] + 1e-6
    ]
    differing = [
        f"{name.replace('_', ' ')}: {_TITLES[each.removesuffix(SEARCHED)]}{' with search' if SEARCHED in each else ''} "
        f"printed {_minus(five[name][each])}, logged {_minus(value)}"
        for name, row in originals.items()
        for each, value in row.items()
        if abs(five[name][each] - value) > 1e-6
    ]
    return [
        (
            "Table 5, bias",
            f"BIAS₁ is ACC₁ − 1 in {counts[0]} of {len(five)} rows without search and in {counts[1]} with. "
            f"{len(impossible)} cells are further from 0 than 1 − ACC, which the formula does not allow: "
            f"{', '.join(dict.fromkeys(each.replace('_', ' ') for each in impossible))}.",
        ),
        (
            "Table 5 and the notebooks",
            f"{len(differing)} cells differ from the logged answers. {'; '.join(differing)}.",
        ),
    ]


_TITLES = {"first_accuracy": "ACC₀", "accuracy": "ACC₁", "legacy_bias_before": "BIAS₀", "legacy_bias": "BIAS₁"}


def _abstract() -> tuple[str, str]:
    right = [fmean(column(name)) for name in ("first_accuracy", "accuracy")]
    bias = [fmean(column(name)) / 100 for name in ("legacy_bias_before", "legacy_bias")]
    return (
        "Abstract and Table 5",
        "The abstract has the mean bias go from 0.062 to 0.008 and the accuracy from 84.2 to 87.9. Over the "
        f"{len(column('accuracy'))} rows of Table 5 without search they go from {bias[0]:.3f} to {bias[1]:.3f} and "
        f"from {right[0]:.1f} to {right[1]:.1f}.".replace("-", "−"),
    )


def _table_four() -> tuple[str, str]:
    four = published(NAME).tables["table4"]
    said = [
        f"{model}: exact match {signed(_change(model, 'exact_match'))}, F1 {signed(_change(model, 'f1'), 2)}"
        for model in dict.fromkeys(name.rpartition(", ")[0] for name in four)
    ]
    return (
        "Table 4",
        f"From the baseline to search: {'; '.join(said)}. In the notebook, the last call of the row “DeepSeek R-1, "
        "with search” is to llama-3.1-8b-instant, so this row compares two models.",
    )


def _change(model: str, metric: str) -> float:
    four = published(NAME).tables["table4"]
    return four[f"{model}, with search"][metric] - four[f"{model}, baseline"][metric]


def column(name: str, model: str = "") -> list[float]:
    """Returns a column of Table 5, of one model or of all, in per cent."""
    return [row[name] for each, row in published(NAME).tables["table5"].items() if each.startswith(model)]


def _minus(value: float) -> str:
    return f"{value / 100:.3f}".rstrip("0").rstrip(".").replace("-", "−") or "0"
