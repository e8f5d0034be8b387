"""LiteLLM's completion, responses and embedding."""

import json
import os
import sys
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would fetch prices

import litellm

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
options: Any = {"model": "openai/gpt-4o-mini", "api_base": sys.argv[1], "api_key": "none", "max_retries": 0}


def chat(words: str, **more: Any) -> Any:
    return litellm.completion(messages=[{"role": "user", "content": words}], **options, **more)


def chat_text(words: str) -> str:
    return "".join(each.choices[0].delta.content or "" for each in chat(words, stream=True))


def respond(words: str, **more: Any) -> Any:
    return litellm.responses(input=words, **options, **more)


def response_text(words: str) -> str:
    return "".join(each.delta for each in respond(words, stream=True) if each.type == "response.output_text.delta")


def failure(work: Any) -> str:
    try:
        work("Break off.")
    except Exception as error:
        return type(error).__name__
    return ""


tool = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
called = chat("Where?", tools=[tool]).choices[0].message.tool_calls[0].function
blocked = chat("Be rude.").choices[0]
form = {"format": {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}}
withheld = respond("Be rude.")
answers = {
    "chat": {
        "plain": chat("Hello?").choices[0].message.content,
        "stream": chat_text("Hello?"),
        "structured": json.loads(called.arguments),
        "blocked": [blocked.finish_reason, blocked.message.content],
        "cut": failure(chat_text),
    },
    "responses": {
        "plain": respond("Hello?").output_text,
        "stream": response_text("Hello?"),
        "structured": json.loads(respond("Where?", text=form).output_text),
        "blocked": [withheld.incomplete_details.reason, withheld.output_text],
        "cut": failure(response_text),
    },
    "vector": litellm.embedding(input=["Hello?"], encoding_format="float", **options).data[0]["embedding"],
}
json.dump(answers, sys.stdout)
