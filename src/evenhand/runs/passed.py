"""Models that Python callers pass as objects or functions: a plan names them by a spec, the settings hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

from evenhand.core.errors import UsageError
from evenhand.models.base import BorrowedModel, Model, ModelOptions
from evenhand.models.call import passed_model
from evenhand.runs.parts import Settings
from evenhand.runs.plan import ModelPlan

AnyModel: TypeAlias = str | Model | Callable[..., Any] | Mapping[str, Any]
"""A spec, a model, a function (see `ModelFunction`), one of these with fields of a plan (`{"spec": …, "base_url": …}`),
or several by role (`{"base": …, "judge": …}`)."""


def with_specs(models: Any, settings: Settings) -> tuple[Any, Settings]:
    """The `models` of a plan as plain values, and the settings with the models and functions that were among them."""
    found = _Passed(settings)
    return found.plain(models), replace(settings, ready={**settings.ready, **found.ready})


class _Passed:
    def __init__(self, settings: Settings) -> None:
        self.ready: dict[str, Model] = {}
        self._settings = settings
        self._specs: dict[int, str] = {}
        """By object, so that one which has two roles is one model."""

    def plain(self, value: Any) -> Any:
        if isinstance(value, str | ModelPlan):
            return value
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            if "spec" in fields:
                return {**fields, "spec": self._spec(fields["spec"], fields)}
            return {role: self.plain(each) for role, each in fields.items()}
        if isinstance(value, list | tuple):
            return [self.plain(each) for each in cast("list[Any]", value)]
        return self._spec(value, {})

    def _spec(self, model: Any, fields: Mapping[str, Any]) -> str:
        if isinstance(model, str):
            return model
        if id(model) not in self._specs:
            made = self._made(model, fields)
            self._specs[id(model)] = made.spec
            self.ready[made.spec] = made
        return self._specs[id(model)]

    def _made(self, model: Any, fields: Mapping[str, Any]) -> Model:
        if isinstance(model, Model):
            if model.spec in self.ready:
                raise UsageError(f"Two models have the spec {model.spec}; give each its own.")
            return BorrowedModel(model)
        if not callable(model):
            kind = type(model).__name__
            raise UsageError(f"A model is a spec such as 'openai/NAME', a Model, a function or a dict, not {kind}.")
        options = ModelOptions(concurrency=self._settings.concurrency)
        timeout: Any = fields.get("timeout", options.timeout)
        return passed_model(model, replace(options, timeout=timeout), self.ready)
