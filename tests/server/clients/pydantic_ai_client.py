"""Pydantic AI's agents, over chat completions and over responses."""

import asyncio
import json
import sys
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Place(BaseModel):
    """Where something is."""

    city: str


async def streamed(agent: Agent, words: str) -> str:
    async with agent.run_stream(words) as result:
        return "".join([each async for each in result.stream_text(delta=True)])


async def failure(work: Any) -> str:
    try:
        await work
    except Exception as error:
        return type(error).__name__
    return ""


async def all_of(model: Any) -> dict[str, Any]:
    agent = Agent(model)
    blocked = await agent.run("Be rude.")
    return {
        "plain": (await agent.run("Hello?")).output,
        "stream": await streamed(agent, "Hello?"),
        "structured": (await Agent(model, output_type=Place).run("Where?")).output.model_dump(),
        "blocked": [blocked.all_messages()[-1].finish_reason, blocked.output],
        "cut": await failure(streamed(agent, "Break off.")),
    }


async def main() -> None:
    provider = OpenAIProvider(base_url=sys.argv[1], api_key="none")
    answers = {
        "chat": await all_of(OpenAIChatModel("gpt-4o-mini", provider=provider)),
        "responses": await all_of(OpenAIResponsesModel("gpt-4o-mini", provider=provider)),
    }
    json.dump(answers, sys.stdout)


asyncio.run(main())
