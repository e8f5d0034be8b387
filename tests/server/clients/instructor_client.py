"""instructor, by tools over chat completions and over responses; it has no plain answers."""

import json
import sys
from typing import Any

import instructor
import openai
from instructor.core import InstructorRetryException
from pydantic import BaseModel


class Place(BaseModel):
    """Where something is."""

    city: str


def all_of(mode: instructor.Mode, reason: Any) -> dict[str, Any]:
    bare = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)
    client = instructor.from_openai(bare, mode=mode)

    def ask(words: str) -> dict[str, Any]:
        made = client.create(
            model="gpt-4o-mini",
            messages=[{"role": "user", "content": words}],
            response_model=Place,
            max_retries=0,
        )
        return made.model_dump()

    def read(words: str) -> dict[str, Any]:
        messages: Any = [{"role": "user", "content": words}]
        *_, last = client.create_partial(model="gpt-4o-mini", messages=messages, response_model=Place, max_retries=0)
        return last.model_dump()

    return {
        "structured": ask("Where?"),
        "stream": read("Where?"),
        "blocked": reason(failure(ask, "Be rude.").last_completion),
        "cut": type(failure(read, "Break off.")).__name__,
    }


def failure(work: Any, words: str) -> Any:
    try:
        work(words)
    except InstructorRetryException as error:
        return error
    raise AssertionError("a wrong answer was accepted")


answers = {
    "chat": all_of(instructor.Mode.TOOLS, lambda made: made.choices[0].finish_reason),
    "responses": all_of(instructor.Mode.RESPONSES_TOOLS, lambda made: made.incomplete_details.reason),
}
json.dump(answers, sys.stdout)
