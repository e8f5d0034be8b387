"""OpenAI's wire format: validates requests and writes answers with the guard's record. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, cast

from evenhand.core.language import REASON
from evenhand.core.types import Usage
from evenhand.guards.checks import LATE, NO_WORDS, failed
from evenhand.guards.fields import TooManyValuesError, allowed_usage, parse_json
from evenhand.guards.input import UNREAD
from evenhand.guards.types import Check, Guarded
from evenhand.server.config import LimitsConfig
from evenhand.web.errors import RequestError

BYPASSED: Any = "bypassed"
"""Action of an answer that was not checked because its key switched the method off; the guard never sets it."""
NO_SCORE = "it could not be scored"
_PUBLIC_PROBLEMS = (LATE, NO_WORDS, UNREAD, REASON)
_SEVERITY = ("passed", BYPASSED, "revised", "unchecked", "flagged", "tried", "unrevised", "blocked", "input-blocked")
MOST_VALUES = 100_000
"""Lists, objects and strings of one request."""
_OURS = frozenset({"id", "object", "created", "model", "choices", "usage"})
Json = dict[str, Any]
_fields = lru_cache(maxsize=64)(asdict)
"""The list of checks as fields; all answers of a route have the same."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Fields of an answer and of all its chunks: the request's id, its arrival in seconds, the route's name."""

    id: str
    created: int
    route: str


def read_body(data: bytes, route: str | None = None) -> Json:
    """Parse the request's body and check the fields that every endpoint needs; `route` replaces the model."""
    fields = parse_object(data)
    if route is not None:
        fields["model"] = route
    if not isinstance(fields.get("model"), str):
        raise RequestError(400, "The request names no model. See /v1/models.", param="model")
    return fields


def parse_object(data: bytes) -> Json:
    """Return a request's body, which must be an object; one with too many values is refused before they are built."""
    try:
        fields = as_object(parse_json(data, MOST_VALUES))
    except TooManyValuesError as error:
        raise RequestError(400, f"The request has {error}, which are more than this server accepts.") from error
    except ValueError as error:
        raise RequestError(400, f"The request body is not valid JSON: {error}.") from error
    if fields is None:
        raise RequestError(400, "The request body must be a JSON object.")
    return fields


def as_object(value: Any) -> Json | None:
    return cast(Json, value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    return cast(list[Any], value) if isinstance(value, list) else None


def check_chat(body: Mapping[str, Any], limits: LimitsConfig) -> None:
    messages = as_list(body.get("messages"))
    if not messages:
        raise RequestError(400, "messages must be a list with at least one message.", param="messages")
    for each in map(as_object, messages):
        if each is None or not isinstance(each.get("role"), str):
            raise RequestError(400, "Every message must be an object with a role.", param="messages")
    parts = sum(len(as_list(each.get("content")) or ()) for each in messages)
    if max(len(messages), parts) > limits.messages:
        raise RequestError(
            400, f"A request may have at most {limits.messages:,} messages and parts of messages.", param="messages"
        )
    for name in ("tools", "functions"):
        if len(as_list(body.get(name)) or ()) > limits.tools:
            raise RequestError(400, f"A request may have at most {limits.tools:,} {name}.", param=name)


def is_set(body: Mapping[str, Any], name: str) -> bool:
    """Return a boolean field; missing or null means false."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise RequestError(400, f"{name} must be true or false.", param=name)
    return bool(value)


def answers_wanted(body: Mapping[str, Any], limits: LimitsConfig) -> int:
    """Return `n`; the model's endpoint may know `best_of`, too."""
    n = 1 if body.get("n") is None else body["n"]
    for name, value in (("n", n), ("best_of", body.get("best_of") or 1)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limits.choices:
            raise RequestError(400, f"{name} must be a whole number from 1 to {limits.choices}.", param=name)
    return n


def single_bodies(body: Json, n: int) -> list[Json]:
    """Return one request per answer; seeds are counted up, so that the answers differ."""
    if n == 1:
        return [body]
    seed = body.get("seed")
    shared = {name: value for name, value in body.items() if name != "n"}
    return [{**shared, "seed": seed + index} if isinstance(seed, int) else shared for index in range(n)]


def chat_completion(answers: Sequence[Guarded], stamp: Stamp) -> Json:
    return {
        **{name: value for name, value in answers[0].upstream.items() if name not in _OURS},
        "id": f"chatcmpl-{stamp.id}",
        "object": "chat.completion",
        "created": stamp.created,
        "model": stamp.route,
        "choices": [_choice(index, answer) for index, answer in enumerate(answers)],
        "usage": usage_of(answers),
        "evenhand": record(answers),
    }


def _choice(index: int, answer: Guarded) -> Json:
    """Return a choice with the upstream's other fields, such as logprobs, if its answer is returned unchanged."""
    choices: Any = answer.upstream.get("choices") or ({},)
    return {"logprobs": None, **choices[0], "index": index, "message": answer.message, "finish_reason": answer.finish}


def text_completion(answers: Sequence[Guarded], stamp: Stamp, before: Sequence[str] = ()) -> Json:
    """Return the answers as one text completion; `before` holds the prompts to echo."""
    begin = before or [""] * len(answers)
    return {
        "id": f"cmpl-{stamp.id}",
        "object": "text_completion",
        "created": stamp.created,
        "model": stamp.route,
        "choices": [
            {"index": index, "text": begin[index] + answer.text, "logprobs": None, "finish_reason": answer.finish}
            for index, answer in enumerate(answers)
        ],
        "usage": usage_of(answers),
        "evenhand": record(answers),
    }


def spent(answers: Sequence[Guarded]) -> Usage:
    return answers[0].usage if len(answers) == 1 else sum((each.usage for each in answers), Usage())


def usage_of(answers: Sequence[Guarded]) -> Json:
    """Return the tokens of the whole loop, or the endpoint's own detailed usage after a single call."""
    own = allowed_usage(answers[0].upstream.get("usage"))
    if len(answers) == 1 and answers[0].usage.calls == 1 and own:
        return own
    used = spent(answers)
    return {
        "prompt_tokens": used.prompt_tokens,
        "completion_tokens": used.completion_tokens,
        "total_tokens": used.tokens,
    }


def worst(answers: Sequence[Guarded]) -> Guarded:
    """Return the answer with the most severe action."""
    return max(answers, key=lambda each: _SEVERITY.index(each.action)) if len(answers) > 1 else answers[0]


def record(answers: Sequence[Guarded]) -> Json:
    """Return the field `evenhand`: action and reasons of the worst answer, and of each if there are several."""
    used = spent(answers)
    fields: Json = {
        **_record(worst(answers)),
        "checks": _fields(answers[0].checks),
        "late": any(each.late for each in answers),
        "iterations": sum(each.iterations for each in answers),
        "calls": used.calls,
        "cost": used.cost,
    }
    if len(answers) > 1:
        fields["answers"] = [_record(each) for each in answers]
    return fields


def _record(answer: Guarded) -> Json:
    requested = answer.input.checks if answer.input else ()
    asked, before, after = (tuple(map(_public, checks)) for checks in (requested, answer.before, answer.after))
    shown = dict(zip(failed((*requested, *answer.before)), failed((*asked, *before)), strict=True))
    fields: Json = {"input": {"action": answer.input.action, "checks": [*map(_check, asked)]}} if answer.input else {}
    return fields | {
        "action": answer.action,
        "why": [shown.get(each, each) for each in answer.why],
        "before": [_check(each) for each in before],
        "after": [_check(each) for each in after],
        "late": answer.late,
        "iterations": answer.iterations,
    }


def _public(check: Check) -> Check:
    """Return the check with a problem that says nothing about the evaluator's endpoint."""
    problem = check.problem
    return check if not problem or problem.startswith(_PUBLIC_PROBLEMS) else replace(check, problem=NO_SCORE)


def _check(check: Check) -> Json:
    """Return a check without the critique, which may quote withheld text."""
    fields: Json = {"name": check.name, "score": check.score, "limit": check.limit, "passed": check.passed}
    if check.problem:
        fields["problem"] = check.problem
    return fields


def headers(answers: Sequence[Guarded], route: str) -> dict[str, str]:
    """Return a summary of the record, for clients that ignore extra fields."""
    used = spent(answers)
    fields = {
        "X-Evenhand-Route": route,
        "X-Evenhand-Action": worst(answers).action,
        "X-Evenhand-Revised": "true" if any(each.action in ("revised", "tried") for each in answers) else "false",
        "X-Evenhand-Late": "true" if any(each.late for each in answers) else "false",
        "X-Evenhand-Iterations": str(sum(each.iterations for each in answers)),
        "X-Evenhand-Calls": str(used.calls),
    }
    if (request := answers[0].input) is not None:
        fields["X-Evenhand-Input"] = request.action
    if used.cost is not None:
        fields["X-Evenhand-Cost"] = f"{used.cost:.9f}"
    return fields
