"""The options of a paper's runs, and what its plans name, in few words."""

from typing import Any, TypeVar

from evenhand.papers.base import Paper, PaperOptions
from evenhand.runs.plan import Plan

O = TypeVar("O", bound=PaperOptions)  # noqa: E741 - of options


def options_of(paper: type[Paper[O]], model: str, *, roles: dict[str, str] | None = None, **fields: Any) -> O:
    """The options of a paper with one base model."""
    return paper.Options.parse("paper", {"models": [{"base": model, **(roles or {})}], **fields})


def methods_of(plan: Plan) -> list[tuple[str, dict[str, Any]]]:
    """(name, options) of each."""
    return [(method.name, method.options) for method in plan.methods]


def specs_of(plan: Plan) -> dict[str, str]:
    """Role → spec of its models."""
    [models] = plan.models
    return {role: model.spec for role, model in models.items()}
