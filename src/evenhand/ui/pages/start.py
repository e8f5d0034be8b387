"""The form that starts a run, the dry run before it, and the button that resumes one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.core.errors import UsageError
from evenhand.core.format import NO_PRICE, count, money
from evenhand.methods.base import METHODS, Method
from evenhand.show.markup import Html, tag
from evenhand.show.table import Table, columns, html_of
from evenhand.ui import offers
from evenhand.ui.index import RunRow
from evenhand.ui.pages.elements import field, problem, select

_LARGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class StartForm:
    """What the form says."""

    model: str = ""
    judge: str = ""
    benchmark: str = "bbq_builtin"
    methods: tuple[str, ...] = ("default",)
    limit: str = "100"
    budget: str = ""

    @classmethod
    def of(cls, form: Any) -> StartForm:
        texts = {name: str(form.get(name, "")).strip()[:300] for name in ("model", "judge", "benchmark", "limit")}
        methods = tuple(str(each) for each in form.getall("method", []))
        return cls(**texts, methods=methods, budget=str(form.get("budget", "")).strip()[:100])

    def arguments(self) -> list[str]:
        """Return the options of `evenhand run`; raises UsageError for what a page may not ask for."""
        found = ["--model", offers.check_model(self.model)]
        if self.judge:
            found += ["--judge", offers.check_model(self.judge)]
        found += ["--benchmark", offers.check_benchmark(self.benchmark)]
        for method in offers.check_methods(list(self.methods), self.benchmark):
            found += ["--method", method]
        if not self.limit.isascii() or not self.limit.isdigit() or not 1 <= int(self.limit) <= _LARGEST:
            raise UsageError(f"The limit is a number of samples from 1 to {_LARGEST:,}.")
        found += ["--limit", str(int(self.limit))]
        for text in offers.check_budget(self.budget):
            found += ["--budget", text]
        return found

    def folder_name(self) -> str:
        """Return a new name for the run, made of safe characters."""
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.model.rpartition('/')[2]}-{self.benchmark}").strip("-.")
        return f"{words[:60]}-{datetime.now(UTC):%Y%m%d-%H%M%S}"

    def hidden(self) -> list[Html]:
        pairs = [(name, getattr(self, name)) for name in ("model", "judge", "benchmark", "limit", "budget")]
        pairs += [("method", each) for each in self.methods]
        return [tag("input", type="hidden", name=name, value=value) for name, value in pairs]


def form(token: Html, asked: StartForm, fault: str = "") -> Html:
    """Return the form; a `fault` says what to mend."""
    models, providers = offers.offered_models(), offers.offered_providers()
    known = tag("datalist", [tag("option", value=each) for each in models], id="models")
    hint = f"One of the list{', or ' + ' or '.join(f'{each}/NAME' for each in providers) if providers else ''}."
    benchmarks = [(name, f"{name} ({BENCHMARKS.get(name).kind}): {_summary(name)}") for name in BENCHMARKS.names()]
    more: dict[str, Any] = {"list": "models", "autocomplete": "off", "spellcheck": "false"}
    return tag(
        "section",
        tag("h1", "Start a run"),
        tag(
            "p",
            "Models, benchmarks and methods are those that are configured where this server was started. "
            "Nothing is called before you have seen what it would take.",
            class_="sentence",
        ),
        problem(fault) if fault else None,
        tag(
            "form",
            token,
            known,
            tag("div", field("model", "Model", asked.model, "text", required=True, **more), _small(hint)),
            select("benchmark", "Benchmark", benchmarks, asked.benchmark, every=""),
            _methods(asked),
            field("limit", "Most samples", asked.limit, "number", min=1, max=_LARGEST, required=True),
            tag(
                "div",
                field("budget", "Budget", asked.budget, "text", required=True, placeholder="$1", autocomplete="off"),
                _small("Required: money, calls or tokens, e.g. $1, 500 calls or 200k tokens. The run stops there."),
            ),
            tag("div", field("judge", "Judge", asked.judge, "text", **more), _small("Empty: the model itself judges.")),
            tag("button", "Show what it would take", type="submit", class_="primary"),
            method="post",
            action="/start",
            class_="form",
        ),
        id="start",
    )


def _small(text: str) -> Html:
    return tag("small", text, class_="soft")


def _summary(benchmark: str) -> str:
    """The first sentence of a benchmark's description."""
    return (BENCHMARKS.get(benchmark).__doc__ or "").strip().partition("\n")[0]


def _said(method: Method) -> str:
    """What a method does, and for which kinds of benchmarks."""
    return f"{method.summary} For {', '.join(sorted(method.kinds))}."


def _methods(asked: StartForm) -> Html:
    boxes = [
        tag(
            "label",
            tag("input", type="checkbox", name="method", value=name, checked=name in asked.methods),
            tag("span", name, " ", tag("small", _said(METHODS.get(name)), class_="soft")),
            class_="check",
        )
        for name in METHODS.names()
    ]
    return tag("fieldset", tag("legend", "Methods"), tag("div", boxes, class_="many"))


def confirm(token: Html, asked: StartForm, forecast: Sequence[Mapping[str, Any]]) -> Html:
    """Return the dry run, and the button that starts the run."""
    amounts = ("samples", "most_calls", "prompt_tokens", "completion_tokens")
    rows = [
        [str(each["arm"]), *(count(each[name]) for name in amounts), money(each["cost"], NO_PRICE)] for each in forecast
    ]
    heads = columns("Arm", "Samples", "Calls ≤", "Prompt tokens ≈", "Reply tokens ≤", "Money ≤")
    judge = f" The judge is {asked.judge}." if asked.judge else ""
    return tag(
        "section",
        tag("h1", "What it would take"),
        tag("p", f"{asked.model} on {asked.benchmark}, within {asked.budget}.{judge}", class_="sentence"),
        html_of(Table("The dry run, by arm", heads, rows)),
        tag(
            "p",
            "Nothing was called yet. Retries of failed calls come on top; the budget stops the run whatever happens.",
            class_="footnote",
        ),
        tag(
            "div",
            tag(
                "form",
                token,
                asked.hidden(),
                tag("input", type="hidden", name="step", value="start"),
                tag("button", "Start the run", type="submit", class_="primary"),
                method="post",
                action="/start",
            ),
            tag("a", "Change it", href="/start", class_="button"),
            class_="row-of-buttons",
        ),
        id="confirm",
    )


def resume_form(token: Html, row: RunRow) -> Html:
    """Return the button that goes on with a run, within a new budget."""
    return tag(
        "form",
        token,
        tag("input", type="hidden", name="id", value=row.id),
        tag(
            "input", type="text", name="budget", required=True, placeholder="$1", aria_label="Budget to go on", size=10
        ),
        tag("button", "Go on", type="submit"),
        method="post",
        action="/resume",
        class_="inline",
    )
