"""Asking a question that is answered in a few words, or not at all: abstaining is a field of the reply, not a phrase.

The reply is one JSON object, {"answerable": true or false, "answer": "…"}: by constrained decoding where the model has
it, else by the prompt. A reply that cannot be parsed is asked for once more; after that the sample is Unscored, or Cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from evenhand.asking.reply import ask_and_read, declined
from evenhand.core.prompts import Prompt
from evenhand.core.types import Answer, Completion, Cut, Message, Params, Refusal, Result, Sample, Unscored
from evenhand.reading.refusals import looks_like_refusal
from evenhand.session import BASE, Session

TOKENS = 160
"""The longest correct answers in SQuAD have about forty words."""
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"answerable": {"type": "boolean"}, "answer": {"type": "string"}},
    "required": ["answerable", "answer"],
    "additionalProperties": False,
}
ABSTAINED = Answer("", details={"abstained": True})

_FORM = '{"answerable": true or false, "answer": "the answer in a few words, or nothing"}'
_LONGEST = 20_000
"""Characters that are read; the rest of a longer reply is ignored."""
_OBJECT = re.compile(r"\{[^{}]*\}")
# An object in Python's or in sloppy syntax: either kind of quotes or none, True for true.
_FLAG = re.compile(r"[\"']?answerable[\"']?\s*[:=]\s*[\"']?(true|false|yes|no)\b", re.IGNORECASE)
_TEXT = re.compile(r"[\"']?\banswer[\"']?\s*[:=]\s*(?:\"((?:[^\"\\]|\\.)*)\"|'(.*?)'(?=\s*[,}]))", re.IGNORECASE)
_ESCAPED = re.compile(r"\\(.)")
_FLAGS = {"true": True, "yes": True, "false": False, "no": False}


async def answer(
    session: Session,
    sample: Sample,
    prompt: Prompt,
    messages: Sequence[Message] | None = None,
    *,
    agent: str = "answerer",
    role: str = BASE,
) -> Result:
    """The model's answer, possibly that it abstains, or why no answer could be read.

    Without `messages`, the prompt is rendered from the sample's context and question.
    """
    if messages is None:
        messages = prompt.render(context=sample.context, question=sample.prompt)
    constrained = "schema" in session.model(role).features
    params = Params(temperature=0, max_tokens=TOKENS, schema=SCHEMA if constrained else None)
    result = await ask_and_read(session, prompt, messages, params, read_answer, agent=agent, role=role)
    if not isinstance(result, Unscored) or isinstance(result, Cut):
        return result
    said = Message("assistant", result.raw[:2000] or "(nothing)")
    again = Message("user", f"That cannot be read. Reply with this JSON object and nothing else: {_FORM}")
    return await ask_and_read(session, prompt, (*messages, said, again), params, read_answer, agent=agent, role=role)


def read_answer(completion: Completion) -> Result:
    """The answer in a reply; Unscored where it holds objects that contradict each other."""
    if refusal := declined(completion):
        return refusal
    text = completion.text[:_LONGEST]
    answers = [each for each in map(_read_object, _objects(text)) if each is not None]
    if answers and all(each == answers[0] for each in answers):
        return answers[0]
    if not answers and looks_like_refusal(text):
        return Refusal(completion.text)
    why = "no answer could be read from the reply" if completion.text.strip() else "the answer is empty"
    return Unscored(why, completion.text)


def _objects(text: str) -> list[str]:
    """The text from the first brace to the last where that is one object, else every flat object."""
    start, end = text.find("{"), text.rfind("}")
    whole = text[start : end + 1] if 0 <= start < end else ""
    return [whole] if _loaded(whole) is not None else _OBJECT.findall(text)


def _loaded(text: str) -> dict[str, Any] | None:
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _read_object(text: str) -> Answer | None:
    fields = _loaded(text)
    if fields is not None:
        return _meant(fields.get("answerable"), fields.get("answer"))
    flag, words = _FLAG.search(text), _TEXT.search(text)
    return _meant(flag and flag[1], words and _ESCAPED.sub(r"\1", words[1] or words[2] or ""))


def _meant(answerable: Any, words: Any) -> Answer | None:
    """What the two fields say; an answer makes up for a missing flag, but not the other way round."""
    if _flag(answerable) is False:
        return ABSTAINED
    text = str(words).strip() if isinstance(words, str | int | float) else ""
    # Dots alone are the form from the prompt, repeated and not filled in.
    return Answer(text, details={"abstained": False}) if text.strip(".…") else None


def _flag(value: Any) -> bool | None:
    return bool(value) if isinstance(value, int) else _FLAGS.get(str(value).strip().lower())
