"""Which stored runs may act on this machine: those that were made here, and those that the user has looked at.

A run folder may come from anyone, and its plan names code, addresses, environment variables and paths. So a run carries
a mark: an HMAC, by a key that stays on this machine, of all that it would have the machine do. A run without a valid
mark is data: it is shown, reported and compared, but its Python is not executed, and its models are reached as this
machine's config says or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from evenhand.core.errors import EvenhandError
from evenhand.core.fields import ComparisonFields
from evenhand.core.files import cache_folder, machine_key, sha256
from evenhand.core.registry import place_of_file
from evenhand.core.specs import model_spec
from evenhand.models.endpoints import call_among, resolved
from evenhand.runs.parts import Settings
from evenhand.runs.plan import ModelPlan, Plan, option_files

MARKS = "marks"
"""The fact, or the field of a file, with the marks of all machines that may act by it."""
_PYTHON = re.compile(r"[^\s,+=?&|;:]*\.py(?!\w)")
_SPLIT = re.compile(r"[,+=?&|;:]")
_LONGEST_NAME = 200
_WORD = re.compile(r"[\w.+-]{0,64}")
_HARMLESS = frozenset({"concurrency", "budget", "prices", "max_failed", "shard"})
"""Settings that may come from anyone: numbers and shares."""
_REACH = frozenset({"base_url", "base_urls", "key", "key_env", "extra", "model_args"})
"""Options that say how a model is reached."""
_PLAIN_ENDS = frozenset({"run plan", "audit", "compare"})
"""Commands whose runs end with a study and a report in the run's own folder."""


def default_cache() -> Path:
    """The cache of answers where no other is named."""
    return cache_folder() / "responses.sqlite"


# --- marks ---


def with_mark(content: Mapping[str, Any], marks: Any, before: Mapping[str, Any] | None = None) -> list[str]:
    """Return the marks with this machine's, in place of the one for what was there `before`.

    Without a place for a key there is no mark.
    """
    own, earlier = _mark(content, make=True), None if before is None else _mark(before, make=False)
    return [*(each for each in _marks(marks) if each not in (own, earlier)), *([own] if own else [])]


def is_marked(content: Mapping[str, Any], marks: Any) -> bool:
    """Whether one of the marks is this machine's, for this content."""
    own = _mark(content, make=False)
    return own is not None and any(hmac.compare_digest(own.encode(), each.encode()) for each in _marks(marks))


def _marks(stored: Any) -> list[str]:
    """The marks in a fact or a field, which may hold anything."""
    return [each for each in cast("list[Any]", stored) if isinstance(each, str)] if isinstance(stored, list) else []


def _mark(content: Mapping[str, Any], *, make: bool) -> str | None:
    key = machine_key(make=make)
    if key is None:
        return None
    plain = orjson.dumps(content, option=orjson.OPT_SORT_KEYS, default=str)
    return hmac.new(key, plain, hashlib.sha256).hexdigest()


# --- what a run would have this machine do ---


def python_in(value: Any) -> list[str]:
    """The Python files that a plan, or the fields of a command, name at any depth."""
    return list(dict.fromkeys(name for text in _texts(value) for name in _files_in(text)))


def _files_in(text: str) -> list[str]:
    """The Python files in a text, as code splits it that loads them; a name may have spaces."""
    parts = (part.strip() for part in _SPLIT.split(text))
    whole = [part for part in parts if part.endswith(".py") and "\n" not in part and len(part) < _LONGEST_NAME]
    return [*whole, *(name for name in _PYTHON.findall(text) if not any(each.endswith(name) for each in whole))]


def _paths_in(text: str) -> list[Path]:
    """The files and folders of this machine that a text names, Python files aside: what is read may be sent on."""
    found: list[Path] = []
    for part in (part.strip() for part in _SPLIT.split(text)):
        with contextlib.suppress(OSError, ValueError):  # too long for a path, or with a zero in it
            path = Path(part).expanduser()
            found += [path.resolve()] if re.search(r"[./]", part) and path.suffix != ".py" and path.exists() else []
    return found


def code_in(plan: Mapping[str, Any]) -> list[str]:
    """The Python code that a stored plan runs: files, and functions used as models."""
    named = _without_prompts({name: value for name, value in plan.items() if name != "benchmark_options"})
    options: Mapping[str, Any] = plan.get("benchmark_options") or {}
    # Prompts of the user's own may stand among the options; other names of files are one word.
    words = [text for text in _texts(options) if not re.search(r"\s", text)]
    called = call_among([named.get("models"), named.get("judges"), named.get("scorers"), named.get("methods")])
    declared = option_files(str(plan.get("benchmark")), options).values()
    files = list(dict.fromkeys([*declared, *python_in([named, words])]))
    return [*files, *([called] if called and not any(name in called for name in files) else [])]


def _without_prompts(value: Any) -> Any:
    """A plan without the system prompts and earlier turns of its models, which may mention anything."""
    match value:
        case Mapping():
            fields = cast("Mapping[Any, Any]", value).items()
            return {name: _without_prompts(each) for name, each in fields if name != "preamble"}
        case list():
            return [_without_prompts(each) for each in cast("list[Any]", value)]
        case _:
            return value


def known_here(model: ModelPlan) -> ModelPlan | None:
    """The model, reached as this machine's config says; None if the run would reach it in another way."""
    try:
        bare, found = resolved(model.spec)
    except EvenhandError:
        return None
    if bare != model.spec or found.get("base_url") != model.base_url or found["provider"] == "call":
        return None
    if not all(_is_word(value) for value in model.extra.values()):
        return None
    return model.model_copy(update={"key": found.get("key"), "provider": found["provider"]})


def here(model: ModelPlan) -> ModelPlan:
    """The model of that name as this machine is configured to reach it, not as the run says."""
    # A spec with options of its own would be read again where the model is loaded.
    bare = ModelPlan.model_validate({"spec": model_spec(model.spec)[0]})
    return known_here(model) or bare.model_copy(update={"preamble": model.preamble})


@dataclass(frozen=True, slots=True)
class Demands:
    """What a run would have this machine do beyond what the machine knows, as sentences without a subject."""

    needed: list[str]
    """Without these it cannot go on."""
    optional: list[str]
    """Settings; without them it goes on with those of this machine."""

    @property
    def every(self) -> list[str]:
        return [*self.needed, *self.optional]


def demands(plan: Plan, stored: Mapping[str, Any], settings: Mapping[str, Any], directory: Path) -> Demands:
    """Return what the run in a directory demands, one by one; `stored` is its plan as it is stored."""
    needed = [f"runs the Python code {name} ({_file(name)})" for name in code_in(stored)]
    needed += [_sends(model) for model in plan.every_model() if known_here(model) is None]
    reached = list(_texts([stored.get("methods"), stored.get("scorers")]))
    needed += [f"connects to {text}" for text in reached if "://" in text or "?" in text]
    needed += [f"reads {path}" for text in reached for path in _paths_in(text)]
    origin: Mapping[str, Any] = settings.get("origin") or {}
    command = str(origin.get("command", "compare"))
    if command not in _PLAIN_ENDS and origin.get("asked"):
        needed.append(f"ends as `evenhand {command}` with {_shown(origin['asked'])}")
    return Demands(list(dict.fromkeys(needed)), _of_settings(settings, origin, directory))


def _of_settings(settings: Mapping[str, Any], origin: Mapping[str, Any], directory: Path) -> list[str]:
    found: list[str] = []
    if (cache := settings.get("cache")) and Path(str(cache)) != default_cache():
        found.append(f"reads and writes the cache of answers {cache}")
    found += [f"sends results to the tracker {each}" for each in settings.get("log_to") or ()]
    found += [f"works on the Ray cluster {settings['on']}"] if settings.get("on") else []
    found += ["sends spans to OpenTelemetry"] if settings.get("otel") else []
    report = origin.get("report")
    elsewhere = report and Path(str(report)).resolve() != directory.resolve() / "report.html"
    return [*found, *([f"writes the report {report}"] if elsewhere else [])]


def fields_demands(command: str, fields: Mapping[str, Any]) -> list[str]:
    """What the stored fields of a command that makes several runs would do, beyond what this machine knows."""
    found = [f"runs the Python code {name} ({_file(name)})" for name in python_in(fields)]
    found += [f"runs the Python code {called}"] if (called := call_among(dict(fields))) else []
    found += [f"uses {text}" for text in _texts(dict(fields)) if "://" in text or re.search(r"\w/[^\s?]*\?\w+=", text)]
    found += [f"follows the file {text}" for text in _texts(dict(fields)) if text.endswith((".yaml", ".yml", ".toml"))]
    found += [f"sets {text} of a model" for text in _texts(dict(fields)) if text in _REACH]
    acting = ("cache", "log", "log_to", "on", "otel", "templates", "model_options", "system", "history", "profile")
    found += [f"sets {name} to {fields[name]}" for name in acting if fields.get(name)]
    return [f"{each} (in `evenhand {command}`)" for each in dict.fromkeys(found)]


def settings_here(kept: Mapping[str, Any] | None) -> Settings:
    """The settings of a run that was made elsewhere: its limits and prices, with the paths of this machine."""
    kept = kept or {}
    known = {name: value for name, value in kept.items() if name in _HARMLESS}
    return Settings.restored({**known, "cache": str(default_cache()), "origin": _origin_here(kept.get("origin") or {})})


def _origin_here(origin: Mapping[str, Any]) -> dict[str, Any]:
    """How a run from elsewhere ends: as its command says, but without the paths that it names."""
    asked: Mapping[str, Any] = origin.get("asked") or {}
    fields = {name: value for name, value in asked.items() if name in ComparisonFields.model_fields}
    return {"command": origin["command"], "asked": fields} if "command" in origin else {}


def _sends(model: ModelPlan) -> str:
    provider = model.provider or model.spec.partition("/")[0]
    where = model.base_url or f"where its provider {provider} is"
    key = "without a key" if model.key == "" else f"with the key in {model.key or 'its usual variable'}"
    extra = f", with the options {_shown(model.extra)}" if model.extra else ""
    return f"sends requests for {model.spec} to {where} {key}{extra}"


def _shown(value: Any) -> str:
    return orjson.dumps(value, default=str).decode()


def _file(name: str) -> str:
    """Return the file that a name refers to, and its hash."""
    path = place_of_file(name.removeprefix("call/"))
    try:
        return f"{path}, SHA-256 {sha256(path)}"
    except OSError:
        return "its file is not here"


def _is_word(value: Any) -> bool:
    return _WORD.fullmatch(value) is not None if isinstance(value, str) else isinstance(value, int | float | None)


def _texts(value: Any) -> Iterator[str]:
    """All texts in a value, at any depth, the names of fields among them."""
    match value:
        case str():
            yield value
        case Mapping():
            for name, each in cast("Mapping[Any, Any]", value).items():
                yield str(name)
                yield from _texts(each)
        case list() | tuple():
            for each in cast("Sequence[Any]", value):
                yield from _texts(each)
        case _:
            return
