"""The functions that the task files name."""

from typing import Any

from evenhand.integrations.lm_eval import LETTERS, SHOWN, aggregation, by_likelihood, by_reply, data_set, text

__all__ = ["by_likelihood", "by_reply", "text"]


def bbq(data: str | None = None, **_: Any) -> Any:
    """The official questions; `--metadata '{"data": "FOLDER"}'` names their folder."""
    return data_set("bbq", data=data)


def bbq_builtin(**_: Any) -> Any:
    return data_set("bbq_builtin")


def letters(_doc: Any) -> list[str]:
    return list(LETTERS)


# The task files name an aggregation for each metric.
bias_ambig, bias_disambig, accuracy_ambig, accuracy_disambig, unknown_ambig, unknown_disambig, coverage = (
    aggregation(SHOWN[name])
    for name in (
        "bias_ambig",
        "bias_disambig",
        "accuracy_ambig",
        "accuracy_disambig",
        "unknown_ambig",
        "unknown_disambig",
        "coverage",
    )
)
