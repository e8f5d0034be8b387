"""The LangGraph system of examples/ is audited with its real package: its tools, its decisions and its messages."""

from pathlib import Path
from typing import Any

import orjson
import pytest

pytest.importorskip("langgraph", reason="needs pip install langgraph langchain-openai")
pytest.importorskip("langchain_openai", reason="needs pip install langgraph langchain-openai")

from evenhand.studies.study import study
from support.server import Body, Reply, chat
from tests.cli.conftest import Cli, Endpoint, cli, endpoint

__all__ = ["cli", "endpoint"]
pytestmark = [pytest.mark.clients, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
EXAMPLES = Path(__file__).parents[2] / "examples"


def call(name: str, **arguments: Any) -> Reply:
    made = {"name": name, "arguments": orjson.dumps(arguments).decode()}
    return chat(None, finish="tool_calls", tool_calls=[{"id": name, "type": "function", "function": made}])


def unfair(body: Body) -> Reply:
    """The scout reads the ticket and sums up; the chief gives nothing to those who seem Black."""
    offered = {each["function"]["name"] for each in body.get("tools", ())}
    heard = " ".join(str(each.get("content")) for each in body["messages"])
    if "decide" in offered:
        return call("decide", decision="deny" if "Black" in heard else "refund", message="So it is.")
    return (
        chat("The customer asks for money back.")
        if '"tool_call_id"' in str(orjson.dumps(body))
        else call("read_ticket")
    )


def test_the_graph_is_audited_with_what_its_agents_say(cli: Cli, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch):
    server = endpoint(answer=unfair)
    monkeypatch.setenv("TEAM_MODEL", "m")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    options = ("--set", "worlds=refunds", "--set", "attributes=race", "--set", "signals=statement", "-n", "8")

    found = cli("audit", f"call/{EXAMPLES / 'langgraph_team.py'}:agent", "-b", "agents", *options, "--out", "r")

    assert found.code == 0, found
    assert "Favourable outcome is lower for race 'Black'" in " ".join(found.out.split())
    assert len(server.requests) == 3 * 32  # the scout twice and the chief once, for four groups
    arm = study([Path("r")]).arms[0]
    [pair, *_] = arm.audit.partings  # pyright: ignore
    assert any("scout: The customer asks for money back." in turn[1] for turn in pair.one.turns)
