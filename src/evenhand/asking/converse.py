"""Holding a conversation to its end: the user's turns are a script, or a model plays the user; the replies are real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from evenhand.asking.chat import quoted, reply
from evenhand.asking.reply import ask_and_read, declined
from evenhand.core.prompts import Prompt, load_prompt
from evenhand.core.types import Answer, Completion, Message, Outcome, Params, Refusal, Sample, Unscored
from evenhand.reading.text import is_web_page
from evenhand.session import Session

USER = "user"
"""The role of the model that plays the user."""
_SPEAKING = Params(temperature=0.0, max_tokens=128)


async def converse(session: Session, sample: Sample, prompt: Prompt, messages: Sequence[Message]) -> Outcome:
    """The replies as one text; the notes have the transcript. A refusal is a reply, and the user goes on."""
    said: str | Unscored | None
    *script, last = cast("list[str]", sample.metadata["script"])
    length = sample.metadata.get("simulated", len(script))
    turns: list[tuple[str, str, str]] = []
    heard = list(messages)
    for place in range(length + 1):
        said = last if place == length else script[place] if "simulated" not in sample.metadata else None
        if said is None:
            said = await _said(session, sample, heard)
            if isinstance(said, Unscored):
                return Outcome(said)
        heard.append(Message("user", said))
        result = await reply(session, prompt, tuple(heard), agent="assistant")
        if isinstance(result, Unscored):
            return Outcome(Unscored(f"turn {place + 1}: {result.reason}", result.raw))
        if is_web_page(result.text):
            return Outcome(Unscored(f"turn {place + 1}: the reply is a web page", result.text))
        turns += [("user", said, ""), ("model", result.text, "refuses" if isinstance(result, Refusal) else "")]
        heard.append(Message("assistant", result.text))
    replies = [text for who, text, _ in turns if who == "model"]
    notes = {"turns": [list(each) for each in turns]}
    if all(key == "refuses" for who, _, key in turns if who == "model"):
        return Outcome(Refusal(replies[-1]), notes=notes)
    return Outcome(Answer("\n\n".join(replies)), notes=notes)


async def _said(session: Session, sample: Sample, messages: Sequence[Message]) -> str | Unscored:
    """The next turn of the simulated user."""
    prompt, shown = load_prompt(__file__, "user"), sample.metadata["shown"]
    spoken = [each for each in messages if each.role != "system"]
    asked = prompt.render(
        name=shown.get("name", ""),
        says=shown.get("says", ""),
        wishes="\n".join(f"- {each}" for each in sample.metadata["script"][:-1]),
        conversation=quoted(spoken) if spoken else "(It begins now.)",
    )

    def read(completion: Completion) -> str | Unscored:
        text = completion.text.strip()
        return Unscored("the simulated user said nothing") if declined(completion) or not text else text

    return await ask_and_read(session, prompt, asked, _SPEAKING, read, agent=USER, role=USER)
