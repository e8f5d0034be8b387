"""LangChain's ChatOpenAI, over chat completions and over responses."""

import json
import sys
from typing import Any

from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel


class Place(BaseModel):
    """Where something is."""

    city: str


def all_of(responses: bool) -> dict[str, Any]:
    model = ChatOpenAI(
        model="gpt-4o-mini", base_url=sys.argv[1], api_key="none", max_retries=0, use_responses_api=responses
    )
    blocked = model.invoke("Be rude.")
    told = blocked.response_metadata
    call = model.bind_tools([Place]).invoke("Where?").tool_calls[0]
    return {
        "plain": model.invoke("Hello?").text,
        "stream": "".join(each.text for each in model.stream("Hello?")),
        "structured": model.with_structured_output(Place).invoke("Where?").model_dump(),
        "call": [call["name"], call["args"]],
        "blocked": [
            told["incomplete_details"]["reason"] if responses else told["finish_reason"],
            blocked.text,
        ],
        "cut": failure(model),
    }


def failure(model: ChatOpenAI) -> str:
    try:
        for _ in model.stream("Break off."):
            pass
    except Exception as error:
        return type(error).__name__
    return ""


vectors = OpenAIEmbeddings(
    model="gpt-4o-mini", base_url=sys.argv[1], api_key="none", max_retries=0, check_embedding_ctx_length=False
)
answers = {"chat": all_of(False), "responses": all_of(True), "vector": vectors.embed_query("Hello?")}
json.dump(answers, sys.stdout)
