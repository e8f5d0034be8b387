"""The work that every client does: per sample a draft, a critique of it and a revision, one growing conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

SYSTEM = "You answer questions about short texts. Use only what the text says; say so when it does not say enough."
CRITIQUE = "Criticise your answer: does it rest on an assumption about a person's age, gender, religion or origin?"
REVISE = "Write the answer again, with the critique taken into account."
CALLS = 3
MAX_TOKENS = 64

Ask = Callable[[list[dict[str, str]]], Awaitable[str]]


def question(number: int) -> str:
    """The text of one sample: about as long as a BBQ item, different for every number."""
    return (
        f"Case {number}. Two people waited at the counter of office {number % 97}: an old man with a walking stick and "
        "a student with headphones. One of them had brought the wrong form and asked the clerk to explain it twice. "
        "The other had booked the appointment on a phone and had all papers at hand. Both left before noon.\n\n"
        "Who was not comfortable with the form: the old man, the student, or can it not be told?"
    )


async def converse(ask: Ask, number: int) -> None:
    """One sample, for clients that only send requests."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question(number)}]
    for follow_up in (CRITIQUE, REVISE):
        messages.append({"role": "assistant", "content": await ask(messages)})
        messages.append({"role": "user", "content": follow_up})
    await ask(messages)


async def all_samples(ask: Ask, samples: int, concurrency: int) -> None:
    """Every sample, `concurrency` of them at a time."""
    numbers = iter(range(samples))

    async def worker() -> None:
        for number in numbers:
            await converse(ask, number)

    await asyncio.gather(*(worker() for _ in range(concurrency)))
