"""LlamaIndex's OpenAI and OpenAIResponses."""

import json
import sys
from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI, OpenAIResponses
from pydantic import BaseModel


class Place(BaseModel):
    """Where something is."""

    city: str


def look(city: str) -> str:
    """Looks at a city."""
    return city


def said(words: str) -> list[ChatMessage]:
    return [ChatMessage(role="user", content=words)]


def all_of(llm: Any, reason: Any) -> dict[str, Any]:
    tool = FunctionTool.from_defaults(look)
    (call,) = llm.get_tool_calls_from_response(llm.chat_with_tools([tool], user_msg="Where?"))
    blocked = llm.chat(said("Be rude."))
    return {
        "plain": llm.chat(said("Hello?")).message.content,
        "stream": "".join(each.delta or "" for each in llm.stream_chat(said("Hello?"))),
        "structured": llm.as_structured_llm(Place).chat(said("Where?")).raw.model_dump(),
        "call": [call.tool_name, call.tool_kwargs],
        "blocked": [reason(blocked.raw), blocked.message.content],
        "cut": failure(llm),
    }


def failure(llm: Any) -> str:
    try:
        for _ in llm.stream_chat(said("Break off.")):
            pass
    except Exception as error:
        return type(error).__name__
    return ""


options: Any = {"model": "gpt-4o-mini", "api_base": sys.argv[1], "api_key": "none", "max_retries": 0}
answers = {
    "chat": all_of(OpenAI(**options), lambda raw: raw.choices[0].finish_reason),
    "responses": all_of(OpenAIResponses(**options), lambda raw: raw.incomplete_details.reason),
}
json.dump(answers, sys.stdout)
