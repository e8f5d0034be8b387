"""Templates: a folder of prompt files that stand in for the built-in ones, checked, recorded, and kept apart."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import evenhand
from evenhand.benchmarks.base import BENCHMARKS, Selection, load_benchmark
from evenhand.core.errors import DataError, PlanError, UsageError
from evenhand.core.prompts import built_in_prompts, copy_prompts, read_templates
from evenhand.guards.guard import Guard
from evenhand.guards.types import Segment
from evenhand.methods.base import METHODS, Method, prompts_of
from evenhand.methods.default import plain_prompt
from evenhand.methods.panel.judges import JudgedCase, prompt_for
from evenhand.models.base import ModelOptions
from evenhand.models.fake import FunctionModel
from evenhand.runs import dry
from evenhand.runs.plan import identity, make_plan
from evenhand.server.config import RouteConfig
from evenhand.server.routes import Routes
from evenhand.session import Session
from support.fixtures import Serve
from support.guarding import ASKED, KIND, RUDE, by_turn, words_of
from support.runs import Workshop
from support.server import chat

CALM = "The baker gets up early in the morning. Then the dough is made by hand. Bread comes out of the oven after that."
CHOICE = "methods/default/choice"


def override(folder: Path, prompt_id: str, old: str, new: str) -> Path:
    """A folder with one built-in prompt, changed."""
    [path] = copy_prompts([prompt_id], folder)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    return folder


def test_a_template_stands_in_where_it_is_used_and_nowhere_else(tmp_path: Path):
    folder = override(tmp_path, CHOICE, "# user\n", "# user\nThink of everybody.\n")
    before = plain_prompt("choice")

    with read_templates(folder).used():
        changed = plain_prompt("choice")
        assert plain_prompt("chat") == plain_prompt("chat")

    assert "Think of everybody." in changed.templates[-1][1]
    assert (changed.id, changed.variables) == (before.id, before.variables)
    assert changed.hash != before.hash
    assert plain_prompt("choice") == before


def test_a_piece_of_a_prompt_can_be_overridden(tmp_path: Path):
    folder = override(tmp_path, "methods/panel/alone", "Give your scores now.", "Score it now, please.")
    case = JudgedCase("", "", False, (("accuracy", "how right it is"),))
    before = prompt_for(case, "alone")

    with read_templates(folder).used():
        changed = prompt_for(case, "alone")

    assert changed.templates[-1][1].endswith("Score it now, please.")
    assert prompt_for(case, "alone") == before


def test_every_built_in_prompt_can_be_copied_and_is_then_the_same(tmp_path: Path):
    copy_prompts(built_in_prompts(), tmp_path)

    assert read_templates(tmp_path).texts.keys() == built_in_prompts().keys()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "methods/cot/raeson.md",
            "# user\nHi",
            r"no prompt named 'methods/cot/raeson'; did you mean .*methods/cot/reason",
        ),
        ("methods/cot/reason.txt", "# user\nHi", "no prompt named 'methods/cot/reason.txt'; did you mean"),
        ("methods/default/chat.md", "# user\nHi", r"chat.md: the template lacks the variable \{\{question\}\}"),
        ("methods/default/chat.md", "# user\n{{question}} {{why}}", r"has no variable \{\{why\}\}; it has: question"),
        ("methods/default/chat.md", "{{question}}", "chat.md: The prompt methods/default/chat must begin"),
    ],
)
def test_a_wrong_template_is_refused_with_its_file(tmp_path: Path, name: str, text: str, says: str):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text, encoding="utf-8")

    with pytest.raises(DataError, match=says):
        read_templates(tmp_path)


def test_a_folder_without_templates_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="no such folder"):
        read_templates(tmp_path / "none")
    (tmp_path / ".hidden").write_text("x")
    with pytest.raises(DataError, match="no templates"):
        read_templates(tmp_path)


def test_nothing_is_overwritten(tmp_path: Path):
    copy_prompts([CHOICE], tmp_path)
    with pytest.raises(UsageError, match="exists already"):
        copy_prompts([CHOICE, "methods/cot/reason"], tmp_path)
    assert not (tmp_path / "methods/cot").exists()


async def test_a_run_asks_with_its_templates_and_records_their_hash(workshop: Workshop, tmp_path: Path):
    model = workshop.model(lambda *_: "A")
    folder = override(tmp_path / "t", CHOICE, "# user\n", "# user\nThink of everybody.\n")

    await workshop.run("own", templates=folder)
    await workshop.run("plain")

    asked = [messages[-1].content for messages, _ in model.requests]
    half = len(asked) // 2
    assert all(text.startswith("Think of everybody.") for text in asked[:half])
    assert not any("everybody" in text for text in asked[half:])
    stored = evenhand.compare(tmp_path / "own").provenance["own"]["plan"]["templates"]
    assert stored == {"folder": str(folder), "hash": read_templates(folder).hash}


async def test_a_changed_folder_is_not_resumed_but_a_moved_one_is(workshop: Workshop, tmp_path: Path):
    workshop.model(lambda *_: "A")
    folder = override(tmp_path / "t", CHOICE, "# user\n", "# user\nThink of everybody.\n")
    await workshop.run(templates=folder)
    runner = workshop.runner(templates=folder, settings={"resume": True})

    moved = folder.rename(tmp_path / "moved")
    await workshop.run(templates=moved, settings={"resume": True})
    override(folder, CHOICE, "# user\n", "# user\nThink twice.\n")

    with pytest.raises(PlanError, match="holds a run of another plan"):
        await workshop.run(templates=folder, settings={"resume": True})
    with pytest.raises(PlanError, match="are not those that the plan was made with"):
        await runner.run()


def test_a_plan_without_templates_keeps_its_hash():
    plan = make_plan({"models": ["local/builtin"]})

    assert "templates" not in plan.essence()
    assert identity(plan, {}, {}) == "cc1a567686167d0d0a4e1bba1bd7f1e9b7cec2160624c1640df459c25033e070"


async def test_a_dry_run_counts_the_words_of_the_templates(workshop: Workshop, tmp_path: Path):
    folder = override(tmp_path / "t", CHOICE, "# user\n", "# user\n" + "Think of everybody. " * 50)
    plan = {"benchmark": "toy", "models": ["local/builtin"]}

    [plain] = await dry.forecast(make_plan(plan), {})
    [longer] = await dry.forecast(make_plan({**plan, "templates": str(folder)}), {})

    assert longer.usage.calls == plain.usage.calls
    assert longer.usage.prompt_tokens > plain.usage.prompt_tokens + 100 * plain.usage.calls


async def test_two_guards_in_one_process_have_templates_of_their_own(serve: Serve, tmp_path: Path):
    revise = "methods/stardtox/revise_chat"
    folders = [override(tmp_path / word, revise, "Earlier", f"{word}: Earlier") for word in ("First", "Second")]
    server = await serve(*[chat(RUDE)] * 3, *[chat(KIND)] * 3)
    options = ModelOptions(base_url=server.url, retries=0)
    guards = [Guard("openai/m", options=options, templates=each) for each in (*folders, None)]

    await asyncio.gather(*(guard(ASKED) for guard in guards))
    for guard in guards:
        await guard.aclose()

    revisions = sorted(words_of(body).partition("How is bread made?")[2].split()[0] for body in server.bodies[3:])
    assert revisions == ["Earlier", "First:", "Second:"]


async def test_a_stream_is_continued_with_the_templates_of_its_guard(serve: Serve, tmp_path: Path):
    folder = override(tmp_path, "guards/continue_chat", "# user\n", "# user\nGo on kindly.\n")
    server = await serve(answer=by_turn(f"{CALM} {RUDE}", KIND))
    options = ModelOptions(base_url=server.url, retries=0)
    async with Guard("openai/m", options=options, templates=folder) as guard:
        segments = guard.stream({"messages": ASKED})
        # Every step in a task of its own, as a server may do it.
        while await asyncio.create_task(_next(segments)) is not None:
            pass

    assert "Go on kindly." in words_of(server.bodies[-1])


async def _next(segments: AsyncGenerator[Segment]) -> Segment | None:
    return await anext(segments, None)


async def test_a_route_is_made_again_when_its_templates_changed(tmp_path: Path):
    folder = override(tmp_path, "methods/stardtox/revise_chat", "Earlier", "Look: Earlier")
    config = RouteConfig(model="openai/m", base_url="http://localhost:9/v1", templates=str(folder))
    routes = Routes({"a": config})
    same = Routes({"a": config}, before=routes)
    (folder / "methods/stardtox/revise_chat.md").write_text("# user\nMend it. {{critiques}}")

    changed = Routes({"a": config}, before=same)

    assert same.find("a") is routes.find("a")
    assert changed.find("a") is not routes.find("a")
    for table in (routes, changed):
        for route in table.retire():
            await route.closed()


@pytest.mark.parametrize("name", METHODS.names())
async def test_the_prompts_that_a_method_uses_are_listed(name: str):
    method = METHODS.get(name)
    listed = {each.removeprefix("methods/") for each in prompts_of(method)}

    used = {each.removeprefix("methods/") for each in await _used(method)}

    assert listed or method.needs
    assert {each for each in used if not each.startswith("panel/")} <= listed


async def _used(method: Method) -> set[str]:
    """The ids of the prompts that a method asks the first sample of every small benchmark with."""
    ids: set[str] = set()
    for benchmark in map(load_benchmark, (name for name in BENCHMARKS.names() if name in _SMALL)):
        if benchmark.kind not in method.kinds:
            continue
        sample = next(iter(benchmark.samples(Selection(1, 0))))
        model = FunctionModel(dry._reply, features=("schema", "logprobs", "seed", *method.needs))
        session = Session(
            sample,
            {"base": model},
            0,
            method.with_options({}),
            scorers=dry._Severe,
            searches=dry._Fruitful,
        )
        # A method of one benchmark's own refuses the others.
        with contextlib.suppress(PlanError):
            await method.run(sample, session)
        ids |= {turn.prompt_id for turn in session.trace}
    return ids


_SMALL = ("bbq_builtin", "realtoxicity_builtin", "squad_builtin", "malibu", "debates", "framing")
