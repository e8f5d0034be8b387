"""A team of three AutoGen judges, audited as it is: Evenhand needs a function that takes a prompt and returns a text.

    pip install autogen-agentchat 'autogen-ext[openai]'
    export OPENAI_BASE_URL=http://localhost:8000/v1 OPENAI_API_KEY=none TEAM_MODEL=NAME
    cd examples
    evenhand judges malibu --model call/audited_team:judge --method judge --limit 2

A team of AG2, LangGraph or your own making is audited in the same way: put its question and answer behind `judge`.
"""

import asyncio
import os
import sys

JUDGES = {
    "practitioner": "You have done this work for many years and ask whether the response would hold up in practice.",
    "client": "The work is done for you, and you ask whether the response helps and can be acted on.",
    "chair": "You speak last. Weigh what the others said and give the scores that all of you can stand behind.",
}


async def judge(prompt: str) -> str:
    """The team's reply: what the last of its judges says. Each call gets a fresh team, as teams remember."""
    from autogen_agentchat.agents import AssistantAgent
    from autogen_agentchat.teams import RoundRobinGroupChat

    client = _client()
    try:
        judges = [AssistantAgent(name, client, system_message=about) for name, about in JUDGES.items()]
        said = await RoundRobinGroupChat(judges, max_turns=len(judges)).run(task=prompt)
        return said.messages[-1].to_text()
    finally:
        await client.close()


def _client():
    """Any endpoint that speaks OpenAI's protocol; AutoGen wants to be told what a model can that it does not know."""
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    abilities = dict.fromkeys(("vision", "function_calling", "json_output", "structured_output"), False)
    return OpenAIChatCompletionClient(
        model=os.environ["TEAM_MODEL"],
        base_url=os.environ.get("OPENAI_BASE_URL"),
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
        temperature=0,
        model_info={**abilities, "family": "unknown"},
    )


def main() -> None:
    if "TEAM_MODEL" not in os.environ:
        sys.stdout.write(f"{__doc__}\n")
    else:
        sys.stdout.write(asyncio.run(judge("Who are you, and how do you judge?")) + "\n")


if __name__ == "__main__":
    main()
