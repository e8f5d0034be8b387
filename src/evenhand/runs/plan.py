"""The plan: benchmark × methods × models × seeds, checked as a whole before the first call.

One class serves flags, files and Python; its hash, with the fingerprints of data and models, identifies a run.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.core.errors import DataError, PlanError, UnknownNameError
from evenhand.core.fields import ALL_ROLES, PlanFields
from evenhand.core.files import in_words, place_of, read_toml, read_yaml
from evenhand.core.preamble import Preamble
from evenhand.core.prompts import BUILT_IN, Templates, read_templates
from evenhand.core.registry import file_hash, is_file, name_in_file
from evenhand.core.specs import read_spec
from evenhand.core.types import Price
from evenhand.judging.card import Calibrated, load_card
from evenhand.judging.judge import JUDGE
from evenhand.methods.base import METHODS, Fitted
from evenhand.models.base import ModelOptions, split_spec
from evenhand.models.endpoints import provider_class, resolved
from evenhand.models.ray import PLACING
from evenhand.scorers.base import model_of

_FROZEN = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ModelPlan(BaseModel):
    """A model and how to reach it; a plain string is a spec."""

    model_config = _FROZEN
    spec: str
    base_url: str | None = None
    timeout: float = Field(120.0, gt=0)
    retries: int = Field(6, ge=0)
    extra: dict[str, Any] = {}
    key: str | None = None
    """The environment variable with the key; None: the provider's usual one, empty: none."""
    price: Price | None = None
    concurrency: Annotated[int, Field(ge=1)] | None = None
    """Most calls in flight, if not as many as of other models."""
    provider: str | None = None
    """The registered provider behind the spec; a plan that says it needs no config file."""
    preamble: Preamble | None = None
    """The system prompt and earlier turns that it is deployed with."""

    @property
    def is_fixed(self) -> bool:
        """Whether its answers stay its own: known by weights or a pinned revision, not by the name of an endpoint."""
        provider = provider_class(self.provider or split_spec(self.spec)[0])
        return "pinned" in self.extra or getattr(provider, "fixed", False) is True

    def is_same(self, other: ModelPlan) -> bool:
        """Whether both are one model at one endpoint."""
        return _essence(self) == _essence(other)

    def options(self, concurrency: int) -> ModelOptions:
        """How to load it; `concurrency` is the limit of models without one of their own."""
        own = self.model_dump(exclude={"spec", "price", "concurrency", "preamble"})
        return ModelOptions(**own, price=self.price, concurrency=self.concurrency or concurrency)


class MethodPlan(BaseModel):
    """A method with the options that are given, a preset among them; a plain string is a spec: NAME:KEY=VALUE,…"""

    model_config = _FROZEN
    name: str
    options: dict[str, Any] = {}

    @property
    def shown(self) -> str:
        """Its name for people."""
        return name_in_file(self.name, "method")


def _model(value: Any, info: ValidationInfo) -> Any:
    """A model with all that is known of how to reach it; `info` may have the defaults."""
    fields = {"spec": value} if isinstance(value, str) else value
    if not isinstance(fields, dict) or not isinstance(fields.get("spec"), str):  # pyright: ignore[reportUnknownMemberType]
        return value
    own: dict[str, Any] = dict(fields)  # pyright: ignore[reportUnknownArgumentType]
    spec, found = resolved(own.pop("spec"), own, info.context)
    return {"spec": spec, **found}


def model_plan(spec: str, defaults: Mapping[str, Any] | None = None) -> ModelPlan:
    """Return a model by its spec; `defaults` are options that it has if nothing else sets them."""
    bare, found = resolved(spec, defaults=defaults)
    return ModelPlan(spec=bare, **found)


def assignments(value: Any) -> list[Any]:
    """A list of role → model maps; a model without a role is the base model."""
    values: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
    return [
        {"base": each} if isinstance(each, str) or (isinstance(each, dict) and "spec" in each) else _numbered(each)
        for each in values
    ]


def _numbered(roles: Any) -> Any:
    """Role → model, with a role of its own for each model of a list: judge, judge_2, …"""
    if not isinstance(roles, dict):
        return roles
    found: dict[str, Any] = {}
    for role, value in cast("dict[str, Any]", roles).items():
        several: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
        found |= {role if number == 1 else f"{role}_{number}": each for number, each in enumerate(several, 1)}
    return found


def _methods(value: Any) -> Any:
    values: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
    return [_method(each) if isinstance(each, str) else each for each in values]


def _method(spec: str) -> dict[str, Any]:
    name, options = read_spec(spec)
    return {"name": name, "options": options}


class TemplatesPlan(BaseModel):
    """A folder of prompt files of the user's own, and the hash of what it held when the plan was made."""

    model_config = _FROZEN
    folder: str
    hash: str

    def read(self) -> Templates:
        """The templates; refused if they are no longer those of the plan."""
        found = read_templates(self.folder)
        if found.hash != self.hash:
            raise PlanError(f"The templates in {self.folder} are not those that the plan was made with.")
        return found


def _folder_of_templates(value: Any) -> Any:
    if not isinstance(value, str | Path):
        return value
    found = read_templates(value)
    return {"folder": found.folder, "hash": found.hash}


def _essence(model: ModelPlan) -> dict[str, Any]:
    """Return what decides a model's answers; its endpoint is part of that, replicas on Ray are not."""
    found = model.model_dump(include={"spec", "base_url", "extra"})
    if model.provider == "ray":
        found["spec"] = found["spec"].removeprefix("ray/")
        found["extra"] = {name: value for name, value in found["extra"].items() if name not in PLACING}
    return found


def _prompted(model: ModelPlan) -> dict[str, Any]:
    """Return what decides the answers of a model under its own prompt; its name is only for people."""
    said = model.model_dump(include={"preamble"}, exclude={"preamble": {"name"}}) if model.preamble else {}
    return {**_essence(model), **said}


Assignment = dict[str, Annotated[ModelPlan, BeforeValidator(_model)]]


_ALWAYS = {
    *("benchmark", "benchmark_options", "methods", "models", "seeds", "limit", "orders", "reading"),
    *("temperature", "max_tokens"),
}
"""Fields of the first version, always part of a plan's identity; newer ones only where they are set."""


class Plan(PlanFields):
    """What to run. Everything here changes results; how fast and how safely to run is in `Settings`.

    `PlanFields` declares the options; these are what they name, found and checked.
    """

    methods: Annotated[list[MethodPlan], BeforeValidator(_methods)] = Field([MethodPlan(name="default")], min_length=1)
    models: Annotated[list[Assignment], BeforeValidator(assignments), Field(min_length=1)]
    templates: Annotated[TemplatesPlan | None, BeforeValidator(_folder_of_templates)] = None
    """A folder whose prompt files are used in place of those of the package."""
    judges: dict[str, Annotated[ModelPlan, BeforeValidator(_model)]] = Field({})
    """The models that scorers name, by their specs; they follow from the scorers."""

    def essence(self) -> dict[str, Any]:
        """Return the plan without what may change on resume: timeouts, keys, prices, the path of templates, …"""
        whole = self.model_dump(
            include=set(Plan.model_fields) - {"models", "judges"}, exclude={"templates": {"folder"}}
        )
        whole["models"] = [{role: _prompted(model) for role, model in each.items()} for each in self.models]
        judges = {spec: _essence(model) for spec, model in self.judges.items() if model.base_url or model.extra}
        unset = {name: field.get_default() for name, field in Plan.model_fields.items() if name not in _ALWAYS}
        whole = {key: value for key, value in whole.items() if key not in unset or value != unset[key]}
        return {**whole, "judges": judges} if judges else whole

    def scorer_specs(self) -> list[str]:
        """The scorers that the plan and the options of its methods name."""
        options = [method.options.get("scorer") for method in self.methods]
        return [*(self.scorers or ()), *(each for each in options if isinstance(each, str))]

    def every_model(self) -> list[ModelPlan]:
        """The models of all roles, and those that scorers name."""
        return [*(model for models in self.models for model in models.values()), *self.judges.values()]

    def model_named(self, spec: str) -> ModelPlan:
        """Return the model that a scorer names; a model of the plan is named by its bare spec, the judge first."""
        judges = [models[JUDGE] for models in self.models if JUDGE in models]
        own = [*judges, *(model for models in self.models for model in models.values())]
        return next((each for each in own if each.spec == spec), None) or self.judges.get(spec) or model_plan(spec)

    def limits(self) -> dict[str, int]:
        """Role → the most tokens of a reply; `ALL_ROLES` for those that are not named."""
        given = self.max_tokens
        return given if isinstance(given, dict) else {} if given is None else {ALL_ROLES: given}

    def prompts(self) -> Templates:
        """The prompts of the user's own that the plan is run with."""
        return BUILT_IN if self.templates is None else self.templates.read()

    def files(self) -> dict[str, str]:
        """The hash of every Python file that the plan names, and of the weights that were fitted for its methods."""
        names = [self.benchmark, *(method.name for method in self.methods), *(self.scorers or ())]
        names += option_files(self.benchmark, self.benchmark_options).values()
        for value in (value for method in self.methods for value in method.options.values()):
            texts: list[Any] = value if isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]
            names += [name for text in texts if isinstance(text, str) for name in re.split(r"[,+]", text)]
        hashes = {name: file_hash(name) for name in names}
        found = {name: digest for name, digest in hashes.items() if digest is not None}
        return found | {each.name: each.hash for each in self.fitted()}

    def fitted(self) -> list[Fitted]:
        """The weights and judges' cards that its methods use; methods in Python files have none."""
        named = [(METHODS.get(each.name), each.options) for each in self.methods if not is_file(each.name)]
        ready = [
            (method, method.with_options(options))
            for method, options in named
            if method.fitted is not None or issubclass(method.options, Calibrated)
        ]
        weights = [
            method.fitted(options, models["base"].spec)
            for method, options in ready
            if method.fitted is not None
            for models in self.models
        ]
        return weights + [
            Fitted(f"card of the judge {judge} ({options.calibration})", card.hash)
            for method, options in ready
            if isinstance(options, Calibrated) and JUDGE in method.roles
            for judge in dict.fromkeys(models.get(JUDGE, models["base"]).spec for models in self.models)
            if (card := load_card(options.used_card, judge)).hash
        ]

    def arms(self) -> list[Arm]:
        """Return every combination, numbered from 1 in a stable order."""
        combinations = list(itertools.product(self.models, self.methods, self.seeds))
        numbered = enumerate(zip(combinations, arm_labels(combinations), strict=True), 1)
        arms = [Arm(number, *combination, label) for number, (combination, label) in numbered]
        labels = [arm.label for arm in arms]
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise PlanError(f"The plan names the same arm twice: {', '.join(sorted(twice))}.")
        return arms


def option_files(benchmark: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The options of a benchmark that name Python files, with the files; a benchmark in a file is not loaded for it."""
    try:
        declared = () if is_file(benchmark) else BENCHMARKS.get(benchmark).code_options
    except UnknownNameError:  # a package that is not installed here
        return {}
    return {name: str(options[name]) for name in declared if options.get(name)}


def arm_labels(combinations: Sequence[tuple[Mapping[str, ModelPlan], MethodPlan, int]]) -> list[str]:
    """Return the shortest labels that tell these arms apart: what differs between them, or the method if nothing does.

    Two models with one method are named by the models, two methods on one model by the methods.
    """
    same_spec: dict[str, list[ModelPlan]] = {}
    for model in (model for models, _, _ in combinations for model in models.values()):
        same_spec.setdefault(model.spec, []).append(model)
    bases = [models["base"] for models, _, _ in combinations if "base" in models]
    shown_methods = {method.name: method.shown for _, method, _ in combinations}

    def name(models: Mapping[str, ModelPlan], role: str) -> str:
        """Return the spec of a role's model, with its options and endpoint if it is used with several."""
        if (model := models.get(role)) is None:
            return ""
        others = same_spec[model.spec]
        options = {
            key: value for key, value in model.extra.items() if any(each.extra.get(key) != value for each in others)
        }
        spec = f"{model.spec}?{'&'.join(f'{key}={value}' for key, value in options.items())}" if options else model.spec
        several = any(each.base_url != model.base_url for each in others)
        spec = f"{spec} at {model.base_url or 'the usual endpoint'}" if several else spec
        if role == "base" and any(each.preamble != model.preamble for each in bases if each.spec == model.spec):
            prompt = model.preamble.name if model.preamble else "the bare model"
            return prompt if len({each.spec for each in bases}) == 1 else f"{spec} · {prompt}"
        return spec

    roles = dict.fromkeys(role for models, _, _ in combinations for role in models)
    differing = [role for role in roles if len({name(models, role) for models, _, _ in combinations}) > 1]
    several_seeds = len({seed for _, _, seed in combinations}) > 1
    one_method = all(method == combinations[0][1] for _, method, _ in combinations)

    def label(models: Mapping[str, ModelPlan], method: MethodPlan, seed: int) -> str:
        shown = shown_methods[method.name]
        parts = [shown if list(shown_methods.values()).count(shown) == 1 else method.name]
        if any(other.name == method.name and other.options != method.options for _, other, _ in combinations):
            options = ", ".join(f"{key}={value}" for key, value in method.options.items())
            parts[0] += f"({options})" if options else ""
        named = ((role, name(models, role)) for role in differing)
        other_parts = [each if role == "base" else f"{role} {each}" for role, each in named if each]
        if one_method and other_parts:
            parts = []
        parts += other_parts
        return " · ".join([*parts, f"seed {seed}"] if several_seeds else parts)

    return [label(*combination) for combination in combinations]


@dataclass(frozen=True, slots=True)
class ArmKey:
    """Identifies an arm by its fields. Its label is for people and depends on the rest of the plan."""

    method: str
    options: Mapping[str, Any]
    """The options that the plan sets; the others have the method's defaults."""
    models: Mapping[str, str]
    """Role → spec."""
    seed: int
    prompt: str = ""
    """The name of the system prompt."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One method on one set of models with one seed."""

    number: int
    models: Mapping[str, ModelPlan]
    method: MethodPlan
    seed: int
    label: str

    @property
    def judge(self) -> ModelPlan:
        """The model of the judge's role: the base model where no other is given."""
        return self.models.get(JUDGE, self.models["base"])

    @property
    def key(self) -> ArmKey:
        specs = {role: model.spec for role, model in self.models.items()}
        preamble = self.models["base"].preamble
        return ArmKey(self.method.name, self.method.options, specs, self.seed, preamble.name if preamble else "")


def make_plan(values: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Plan:
    """Return a checked plan, or raise a PlanError that explains the first mistake in one sentence.

    `defaults` are options of models that do not set them: base_url, timeout, retries, extra.
    """
    try:
        plan = Plan.model_validate(dict(values), context=dict(defaults or {}))
    except ValidationError as error:
        # A misspelt field also makes the correct one missing; report the misspelling.
        first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
        place = place_of(first["loc"])
        if first["type"] == "extra_forbidden":
            fields = ModelPlan.model_fields if first["loc"][0] == "models" else Plan.model_fields
            raise PlanError(f"A plan has no field {place!r}; it has {', '.join(fields)}.") from error
        if first["type"] == "missing" and place == "models":
            raise PlanError("The plan names no model; pass --model, for example --model local/builtin.") from error
        raise PlanError(f"The plan is wrong: {in_words(first)}.") from error
    for assignment in plan.models:
        if "base" not in assignment:
            raise PlanError("The plan only has models for extra roles. Name the model to audit with --model SPEC.")
    if "judges" in values:  # a stored plan
        return plan
    own = {model.spec for models in plan.models for model in models.values()}
    named = [spec for scorer in plan.scorer_specs() if (spec := model_of(scorer)) is not None and spec not in own]
    return plan.model_copy(update={"judges": {spec: model_plan(spec, defaults) for spec in named}})


def read_plan_file(path: Path) -> dict[str, Any]:
    """The raw fields of a YAML or TOML plan file."""
    value: Any = read_toml(path)[0] if path.suffix == ".toml" else read_yaml(path)
    if not isinstance(value, dict):
        raise DataError("a plan is a list of 'field: value' lines, e.g. 'benchmark: bbq_builtin'.", file=path)
    return {str(key): each for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def default_folder(name: str, *plans: Plan) -> Path:
    """Return the default folder of these plans, which no other plans share."""
    essences = [plan.essence() for plan in plans]
    whole = essences[0] if len(essences) == 1 else essences
    digest = hashlib.sha256(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)).hexdigest()[:8]
    return Path("runs") / f"{name}-{digest}"


def identity(
    plan: Plan,
    benchmark: Mapping[str, Any],
    models: Mapping[str, Mapping[str, Any]],
    searches: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """The hash of all that determines a run's results."""
    whole: dict[str, Any] = {"plan": plan.essence(), "benchmark": benchmark, "models": list(models.values())}
    if searches:
        whole["searches"] = searches
    if files := plan.files():
        whole["files"] = files
    return hashlib.sha256(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)).hexdigest()
