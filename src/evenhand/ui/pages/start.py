"""The form that starts a run, the dry run before it, and what can be done with a run that is there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from evenhand.benchmarks.base import BENCHMARKS
from evenhand.core.errors import UsageError
from evenhand.core.format import NO_PRICE, count, doc_line, money
from evenhand.methods.base import METHODS
from evenhand.show.markup import Html, Node, tag
from evenhand.show.page import footnote
from evenhand.show.table import Table, columns, html_of
from evenhand.ui import offers
from evenhand.ui.index import RunRow
from evenhand.ui.pages import buttons, field, hidden, link, note, problem, select

_LARGEST = 1_000_000
OWN = "prompts"
"""The benchmark of own prompts."""


@dataclass(frozen=True, slots=True)
class StartForm:
    """What the form says."""

    model: str = ""
    judge: str = ""
    benchmark: str = "bbq_builtin"
    methods: tuple[str, ...] = ("default",)
    limit: str = "100"
    budget: str = ""
    prompts: str = ""
    """The name under which uploaded prompts are kept."""
    groups: str = ""
    """Groups in the user's own words, for own prompts."""

    @classmethod
    def of(cls, form: Any, folder: Path) -> StartForm:
        names = ("model", "judge", "benchmark", "limit", "budget", "prompts")
        texts = {name: str(form.get(name, "")).strip()[:300] for name in names}
        if kept := keep_file(form, "file", folder):
            texts["prompts"] = kept
        if texts["prompts"]:
            texts["benchmark"] = OWN
        methods = tuple(str(each) for each in form.getall("method", []))
        return cls(**texts, methods=methods, groups=str(form.get("groups", "")).strip()[:5000])

    def arguments(self, folder: Path) -> list[str]:
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
        if self.prompts:
            found += ["--set", f"data={offers.uploaded(folder, self.prompts)}"]
        if groups := offers.own_groups(self.groups):
            if self.benchmark != OWN:
                raise UsageError("Groups in your own words are for prompts of your own; upload a file of them.")
            kept = offers.keep_upload(folder, "groups.yaml", orjson.dumps(groups))
            found += ["--set", f"identities={offers.uploaded(folder, kept)}", "--attribute", ",".join(groups)]
        return found

    def folder_name(self) -> str:
        """Return a new name for the run, made of safe characters."""
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.model.rpartition('/')[2]}-{self.benchmark}").strip("-.")
        return f"{words[:60]}-{datetime.now(UTC):%Y%m%d-%H%M%S}"

    def hidden(self) -> list[Html]:
        names = ("model", "judge", "benchmark", "limit", "budget", "prompts", "groups")
        pairs = [(name, getattr(self, name)) for name in names]
        pairs += [("method", each) for each in self.methods]
        return [hidden(name, value) for name, value in pairs]


def form(token: Html, asked: StartForm, fault: str = "") -> Html:
    """Return the form; a `fault` says what to mend."""
    models, providers = offers.offered_models(), offers.offered_providers()
    known = tag("datalist", [tag("option", value=each) for each in models], id="models")
    hint = f"One of the list{', or ' + ' or '.join(f'{each}/NAME' for each in providers) if providers else ''}."
    benchmarks = [
        (name, f"{name} ({BENCHMARKS.get(name).kind}): {doc_line(BENCHMARKS.get(name))}") for name in BENCHMARKS.names()
    ]
    more: dict[str, Any] = {"list": "models", "autocomplete": "off", "spellcheck": "false"}
    return tag(
        "section",
        tag("h1", "Start a run"),
        note(
            "Models, benchmarks and methods are those that are configured where this server was started. "
            "Nothing is called before you have seen what it would take."
        ),
        problem(fault) if fault else None,
        tag(
            "form",
            token,
            known,
            tag("div", field("model", "Model", asked.model, "text", required=True, **more), _small(hint)),
            select("benchmark", "Benchmark", benchmarks, asked.benchmark, every=""),
            _own_prompts(asked),
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
            enctype="multipart/form-data",
            class_="form",
        ),
        id="start",
    )


def keep_file(form: Any, name: str, folder: Path) -> str:
    """Keep a file of the form, if one was chosen; return the name under which it is kept."""
    given = form.get(name)
    chosen = isinstance(given, web.FileField) and given.filename
    return offers.keep_upload(folder, given.filename, given.file.read()) if chosen else ""


def _own_prompts(asked: StartForm) -> Html:
    """The file of own prompts, and the groups for which they are asked."""
    known = f" A file is uploaded already ({asked.prompts}); another takes its place." if asked.prompts else ""
    example = "seniority: beginner, veteran"
    return tag(
        "fieldset",
        tag("legend", "Or prompts of your own"),
        tag("label", "File", tag("input", type="file", name="file", accept=".csv,.jsonl,.txt,.xlsx,.parquet")),
        _small(f"A prompt on each line, with a slot such as {{person}} or a name; at most 1 MB.{known}"),
        hidden("prompts", asked.prompts),
        tag(
            "label",
            "Groups in your own words",
            tag("textarea", asked.groups, name="groups", rows=3, placeholder=example),
        ),
        _small(f"Empty: gender and race. Else a line for each attribute, e.g. {example}."),
        id="own",
    )


def _small(text: str) -> Html:
    return tag("small", text, class_="soft")


def _methods(asked: StartForm) -> Html:
    known = {name: METHODS.get(name) for name in METHODS.names()}
    boxes = [
        tag(
            "label",
            tag("input", type="checkbox", name="method", value=name, checked=name in asked.methods),
            tag("span", name, " ", _small(f"{each.summary} For {', '.join(sorted(each.kinds))}.")),
            class_="check",
            data_kinds=" ".join(sorted(each.kinds)),
        )
        for name, each in known.items()
    ]
    kinds = " ".join(f"{name}={BENCHMARKS.get(name).kind}" for name in BENCHMARKS.names())
    return tag("fieldset", tag("legend", "Methods"), tag("div", boxes, class_="many"), id="methods", data_kinds=kinds)


def confirm(token: Html, asked: StartForm, found: Mapping[str, Any]) -> Html:
    """Return the dry run, the first prompts as they would be asked, and the button that starts the run."""
    forecast: Sequence[Mapping[str, Any]] = found["forecast"]
    examples: Sequence[Mapping[str, str]] = found.get("examples", ())
    amounts = ("samples", "most_calls", "prompt_tokens", "completion_tokens")
    rows = [
        [str(each["arm"]), *(count(each[name]) for name in amounts), money(each["cost"], NO_PRICE)] for each in forecast
    ]
    asking = [[each["version"], each["asked"]] for each in examples]
    heads = columns("Arm", "Samples", "Calls ≤", "Prompt tokens ≈", "Reply tokens ≤", "Money ≤")
    judge = f" The judge is {asked.judge}." if asked.judge else ""
    begin = tag("button", "Start the run", type="submit", class_="primary")
    return tag(
        "section",
        tag("h1", "What it would take"),
        note(f"{asked.model} on {asked.benchmark}, within {asked.budget}.{judge}"),
        html_of(Table("The dry run, by arm", heads, rows)),
        html_of(Table("How prompts are asked (the first ones)", columns("For", "Prompt", words=2), asking))
        if examples
        else None,
        [problem(f"{each}.") for each in found.get("left_out", ())],
        footnote(
            "Nothing was called yet. Retries of failed calls come on top; the budget stops the run whatever happens."
        ),
        buttons(
            tag("form", token, asked.hidden(), hidden("step", "start"), begin, method="post", action="/start"),
            tag("a", "Change it", href="/start", class_="button"),
        ),
        id="confirm",
    )


def actions(token: Html, row: RunRow, metric: str) -> Html:
    """Return the forms that hold a run to limits, have people rate it and pack it as evidence."""
    known = row.benchmark in BENCHMARKS.names() and BENCHMARKS.get(row.benchmark).kind != "choice"
    limit = f"{metric or 'coverage'} > 10"
    more: dict[str, Any] = {"method": "post", "class_": "form"}
    whose = [token, hidden("id", row.id)]
    gate = tag(
        "form",
        whose,
        field("fail_if", "Fails if", "", "text", required=True, placeholder=limit, autocomplete="off"),
        _small(f"A limit on a metric, e.g. {limit} or |{metric or 'coverage'}| > 10; several are separated by commas."),
        tag("button", "Hold it to limits", type="submit"),
        action="/gate",
        **more,
    )
    rate = tag(
        "form",
        whose,
        field("raters", "Raters", "2", "text", required=True),
        _small("How many, or their names: ann,ben."),
        tag("label", "Scales", tag("input", type="file", name="rubric", accept=".yaml,.yml")),
        _small("A rubric file (.yaml) with your own scales; empty: those of the rubric opinion."),
        tag("button", "Have people rate it", type="submit"),
        action="/annotate",
        enctype="multipart/form-data",
        **more,
    )
    pack = tag(
        "form",
        whose,
        _small("A folder for auditors: page, numbers, hashes, limits, and how to repeat it."),
        tag("button", "Pack it as evidence", type="submit"),
        action="/evidence",
        **more,
    )
    summary = tag("summary", "Gate, ratings by people, evidence" if known else "Gate, evidence")
    return tag("section", tag("details", summary, gate, rate if known else None, pack), id="actions")


def done(row: RunRow, title: str, output: str, *more: Node) -> Html:
    """Return what a command printed; addresses in it are links."""
    lines: list[Node] = []
    for line in output.splitlines():
        before, http, address = line.partition("http://")
        lines += [before, tag("a", http + address, href=http + address, target="_blank") if http else "", "\n"]
    back = tag("a", "Back to the run", href=link("/run", id=row.id), class_="button")
    return tag("section", tag("h1", title), tag("pre", lines, class_="scroll"), buttons(more, back), id="done")


def resume_form(token: Html, row: RunRow) -> Html:
    """Return the button that goes on with a run, within a new budget."""
    return tag(
        "form",
        token,
        hidden("id", row.id),
        tag(
            "input", type="text", name="budget", required=True, placeholder="$1", aria_label="Budget to go on", size=10
        ),
        tag("button", "Go on", type="submit"),
        method="post",
        action="/resume",
        class_="inline",
    )
