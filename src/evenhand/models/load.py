"""Loads a model by its spec: its provider, its endpoint or pool of endpoints, and what reasoning needs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from evenhand.core.errors import UsageError
from evenhand.models.base import Model, ModelOptions, WrappedModel, split_spec
from evenhand.models.endpoints import provider_class, resolved


def load_model(spec: str | Model, options: ModelOptions | None = None) -> Model:
    """Load the model named by `spec`; a provider's class is called as `cls(name, options)`.

    A field of `options` that has its default value may be set by a config file; the spec's own options win over both.
    A model that is passed in place of a spec is used as it is.
    """
    from evenhand.models.reasoning import ReasoningModel

    if isinstance(spec, Model):
        model = spec
        while isinstance(model, WrappedModel) and not isinstance(model, ReasoningModel):
            model = model.inner
        return spec if isinstance(model, ReasoningModel) else ReasoningModel(spec, options or ModelOptions())
    bare, options = reached(spec, options)
    name = split_spec(bare)[1]
    factory: Any = provider_class(options.provider or "")
    if "reasoning_effort" in options.extra and not takes_effort(factory):
        raise UsageError(
            f"{bare} takes no reasoning effort; give it to the model that reasons, as in "
            "'openai/NAME?reasoning_effort=low'."
        )
    if is_pool(options):
        from evenhand.models.pool import load_pool

        model = load_pool(factory, name, options)
    else:
        model = factory(name, options)
    if options.provider != split_spec(bare)[0]:
        model.spec = bare
    return ReasoningModel(model, options)


def is_pool(options: ModelOptions) -> bool:
    return "," in (options.base_url or "")


def reached(spec: str, options: ModelOptions | None = None) -> tuple[str, ModelOptions]:
    """Return a model's PROVIDER/NAME and its options, with those of its spec and of config files."""
    options = options or ModelOptions()
    if options.provider is not None:
        return spec, options
    default = ModelOptions()
    given = {each.name: getattr(options, each.name) for each in fields(options)}
    set_ones = {name: value for name, value in given.items() if value != getattr(default, name)}
    bare, found = resolved(spec, defaults=set_ones)
    return bare, replace(options, **found)


def takes_effort(provider: Any) -> bool:
    """Whether a provider passes on the option `reasoning_effort`."""
    return "reasoning_effort" in (getattr(provider, "takes", None) or ())
