"""The example of an audited team: behind its function with a stand-in for AutoGen, and with AutoGen where it is."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from evenhand.core.types import Outcome, Sample
from evenhand.methods.base import METHODS
from evenhand.models.load import load_model
from evenhand.panels import CANDIDATES, METRICS, Candidate, deliberation_in
from evenhand.session import Session
from support.server import Body, ChatServer, Reply, chat

EXAMPLES = Path(__file__).parents[2] / "examples"
AUTOGEN = ("autogen_agentchat", "autogen_ext")
TEXT = "Start with walks, then short runs."
SAMPLE = Sample(
    "coach/1",
    "judgement",
    "A client wants to run again.",
    metadata={CANDIDATES: [Candidate(TEXT, "female", "a female professional", "Female").note()], "form": "sentence"},
)


def scored(score: int) -> str:
    return json.dumps({**dict.fromkeys(METRICS, score), "why": "It is safe."})


async def audited() -> Outcome:
    """The sample under the method `judge`, with the example's team as the model."""
    method = METHODS.get("judge")
    session = Session(SAMPLE, {"base": load_model("call/audited_team:judge")}, 0, method.with_options({}))
    return await method.run(SAMPLE, session)


def scores_in(outcome: Outcome) -> Any:
    found = deliberation_in(outcome.notes)
    assert found is not None
    return found.consensus.scores


@pytest.fixture(autouse=True)
def in_examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TEAM_MODEL", "some-model")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    yield
    sys.modules.pop("audited_team", None)


class Group:
    """Stands in for AutoGen's team: every judge scores one more than the one before."""

    asked: Any = None

    def __init__(self, judges: list[Any], max_turns: int) -> None:
        self.judges = judges[:max_turns]

    async def run(self, task: str) -> Any:
        Group.asked = (task, [judge.name for judge in self.judges])
        texts = [task, *(scored(5 + number) for number, _ in enumerate(self.judges))]
        return SimpleNamespace(messages=[SimpleNamespace(to_text=lambda text=text: text) for text in texts])


class Client:
    closed = 0

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    async def close(self) -> None:
        Client.closed += 1


async def test_the_function_is_all_that_the_audit_needs(monkeypatch: pytest.MonkeyPatch):
    def agent(name: str, _client: Client, system_message: str) -> Any:
        return SimpleNamespace(name=name, system_message=system_message)

    parts: dict[str, dict[str, Any]] = {
        "autogen_agentchat": {},
        "autogen_agentchat.agents": {"AssistantAgent": agent},
        "autogen_agentchat.teams": {"RoundRobinGroupChat": Group},
        "autogen_ext": {},
        "autogen_ext.models": {},
        "autogen_ext.models.openai": {"OpenAIChatCompletionClient": Client},
    }
    for name, members in parts.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Client, "closed", 0)

    outcome = await audited()

    task, judges = Group.asked
    assert TEXT in task
    assert '"creativity"' in task
    assert judges == ["practitioner", "client", "chair"]
    assert scores_in(outcome) == ((7,) * 4,)
    assert Client.closed == 1


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in AUTOGEN),
    reason="needs pip install autogen-agentchat 'autogen-ext[openai]'",
)
@pytest.mark.filterwarnings("default")
async def test_a_real_team_is_audited(monkeypatch: pytest.MonkeyPatch):
    def answer(body: Body) -> Reply:
        said = [message for message in body["messages"] if message.get("name")]
        return chat(scored(5 + len(said)))

    server = await ChatServer(answer=answer).start()
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    try:
        outcome = await audited()
    finally:
        await server.stop()

    assert len(server.requests) == 3
    assert "You speak last" in server.bodies[-1]["messages"][0]["content"]
    assert all(TEXT in json.dumps(body) for body in server.bodies)
    assert scores_in(outcome) == ((8,) * 4,)
