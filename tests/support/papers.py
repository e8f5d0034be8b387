"""The options of a paper's runs, and what its plans name, in few words."""

from typing import Any

from evenhand.papers.base import PaperOptions
from evenhand.runs.plan import Plan, make_plan


def options_of(model: str, *, roles: dict[str, str] | None = None, **fields: Any) -> PaperOptions:
    return PaperOptions(make_plan({"models": [{"base": model, **(roles or {})}]}).models, **fields)


def methods_of(plan: Plan) -> list[tuple[str, dict[str, Any]]]:
    """(name, options) of each."""
    return [(method.name, method.options) for method in plan.methods]


def specs_of(plan: Plan) -> dict[str, str]:
    """Role → spec of its models."""
    [models] = plan.models
    return {role: model.spec for role, model in models.items()}
