"""Functions as models: how a spec finds its function, what the function gets, and what becomes of its faults."""

import asyncio
import importlib
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from evenhand.core.errors import ModelError, UsageError
from evenhand.core.types import Message, Params
from evenhand.models.base import ModelOptions
from evenhand.models.call import CalledModel, as_prompt
from evenhand.models.load import load_model

QUESTION = [Message("system", "Be brief."), Message("user", "Who was it?")]
Team = Callable[[str], str]


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Team:
    """Writes a module into the current directory; gives its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    written: list[str] = []

    def write(source: str) -> str:
        name = f"team_{abs(hash(request.node.nodeid))}_{len(written)}"
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
        written.append(name)
        importlib.invalidate_caches()
        return name

    def forget() -> None:
        for name in written:
            sys.modules.pop(name, None)

    request.addfinalizer(forget)
    return write


async def test_an_async_function_of_the_current_directory_answers(team: Team):
    name = team("async def judge(prompt):\n    return prompt.upper()\n")

    generation = await load_model(f"call/{name}:judge").generate(QUESTION, Params())

    assert generation.text == "BE BRIEF.\n\nWHO WAS IT?"
    assert generation.model == f"call/{name}:judge"


async def test_a_plain_function_works_in_a_thread(team: Team):
    name = team("import threading\ndef judge(prompt):\n    return threading.current_thread().name\n")

    generation = await load_model(f"call/{name}:judge").generate(QUESTION, Params())

    assert generation.text != threading.current_thread().name


@pytest.mark.parametrize(
    "source",
    [
        "class Team:\n    async def judge(self, prompt):\n        return 'B'\nteam = Team()\n",
        "class Team:\n    class judge:\n        def __new__(cls, prompt):\n            return 'B'\nteam = Team()\n",
        "class Judge:\n    async def __call__(self, prompt):\n        return 'B'\nclass team:\n    judge = Judge()\n",
        "async def one(prompt):\n    return 'B'\nclass team:\n    judge = staticmethod(lambda prompt: one(prompt))\n",
    ],
)
async def test_whatever_can_be_called_will_do(team: Team, source: str):
    model = load_model(f"call/{team(source)}:team.judge")

    assert (await model.generate(QUESTION, Params())).text == "B"


async def test_several_completions_are_several_calls(team: Team):
    name = team("said = []\ndef judge(prompt):\n    said.append(prompt)\n    return 'four letters'\n")

    generation = await load_model(f"call/{name}:judge").generate(QUESTION, Params(n=3))

    assert len(generation.completions) == len(sys.modules[name].said) == 3
    assert generation.usage.calls == 3
    assert generation.usage.completion_tokens == 3 * 3
    assert generation.usage.prompt_tokens > 0


def test_what_it_said_before_is_marked_as_its_own():
    asked = [*QUESTION, Message("assistant", "Him."), Message("user", "Reply in JSON.")]

    assert as_prompt(asked) == "Be brief.\n\nWho was it?\n\nYour reply was:\nHim.\n\nReply in JSON."


def test_nothing_is_promised_and_nothing_is_free(team: Team):
    model = load_model(f"call/{team('def judge(prompt): return prompt')}:judge")

    assert model.features == frozenset()
    assert not model.free


def test_another_source_is_another_model(team: Team):
    one, same, other = (team(f"def judge(prompt): return '{text}'") for text in ("a", "a", "b"))

    sources = [load_model(f"call/{name}:judge").fingerprint()["source"] for name in (one, same, other)]

    assert sources[0] == sources[1] != sources[2]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("async def judge(prompt):\n    raise ValueError('no key\\nand more')\n", "failed: ValueError: no key$"),
        ("def judge(prompt):\n    raise KeyError\n", "failed: KeyError$"),
        ("def judge(prompt):\n    raise TimeoutError('upstream')\n", "failed: TimeoutError: upstream$"),
        ("def judge(prompt):\n    return next(iter([]))\n", "failed: RuntimeError: function raised StopIteration$"),
        ("def judge(prompt):\n    return None\n", "returned NoneType, not a text; it must return a str"),
        ("def judge():\n    return 'B'\n", "failed: TypeError: judge"),
    ],
)
async def test_a_fault_of_the_function_is_one_sentence(team: Team, source: str, words: str):
    model = load_model(f"call/{team(source)}:judge")

    with pytest.raises(ModelError, match=words):
        await model.generate(QUESTION, Params())


async def test_a_function_that_never_answers_is_given_up(team: Team):
    name = team("import asyncio\nasync def judge(prompt):\n    await asyncio.Event().wait()\n")
    model = load_model(f"call/{name}:judge", ModelOptions(timeout=0.01))

    with pytest.raises(ModelError, match=r"no answer within 0\.01 seconds; --timeout allows more"):
        await model.generate(QUESTION, Params())


async def test_no_more_calls_run_at_once_than_allowed(team: Team):
    name = team(
        "import asyncio\nrunning = most = 0\n"
        "async def judge(prompt):\n"
        "    global running, most\n"
        "    running += 1\n    most = max(most, running)\n"
        "    for _ in range(5):\n        await asyncio.sleep(0)\n"
        "    running -= 1\n    return 'B'\n"
    )
    model = load_model(f"call/{name}:judge", ModelOptions(concurrency=2))

    await asyncio.gather(*(model.generate(QUESTION, Params()) for _ in range(6)))

    assert sys.modules[name].most == 2


async def test_plain_functions_run_in_as_many_threads_as_calls_are_allowed(team: Team):
    name = team("import threading\nall_here = threading.Barrier(40)\ndef judge(prompt):\n"
                "    all_here.wait(60)\n    return 'B'\n")  # fmt: skip
    async with load_model(f"call/{name}:judge", ModelOptions(concurrency=40)) as model:
        replies = await asyncio.gather(*(model.generate(QUESTION, Params()) for _ in range(40)))

    assert {each.text for each in replies} == {"B"}


@pytest.mark.parametrize("spec", ["call/my_team", "call/:judge", "call/my_team:"])
def test_a_spec_names_a_module_and_a_function(spec: str):
    with pytest.raises(UsageError, match="write call/MODULE:FUNCTION"):
        load_model(spec)


@pytest.mark.parametrize("module", ["no_such_team", "no_such_package.team", "json.no_such_part"])
def test_a_module_that_is_not_there_is_told_in_one_sentence(team: Team, module: str):
    with pytest.raises(UsageError, match=f"There is no module {module}; run Evenhand in the folder"):
        load_model(f"call/{module}:judge")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def judge(", "SyntaxError"),
        ("raise RuntimeError('no key')", "RuntimeError: no key"),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(team: Team, source: str, words: str):
    with pytest.raises(UsageError, match=rf"cannot be imported \({words}.*\); fix that first"):
        load_model(f"call/{team(source)}:judge")


def test_a_function_that_is_not_there_is_told_in_one_sentence(team: Team):
    name = team("def judge(prompt): return prompt\nnumber = 3\n")

    with pytest.raises(UsageError, match=f"the module {name} has no jury; check the name"):
        load_model(f"call/{name}:jury")
    with pytest.raises(UsageError, match="number cannot be called; name a function"):
        CalledModel(f"{name}:number", ModelOptions())
