"""RLAIF, the baseline closest to RLDF: a referee scores sampled answers for bias; there is no debate.

The neutral question is asked `answers` times, as a user would ask it, and the referee of the debates scores the
answers. The notes have the form of a one-round debate, so that `evenhand train pairs` can make training data from them.
"""

from __future__ import annotations

from evenhand.benchmarks.debates import Statement
from evenhand.core import aio
from evenhand.core.types import Outcome, Sample
from evenhand.methods.base import method
from evenhand.methods.debate import concluded
from evenhand.methods.debate.debaters import TEACHER, Silence, stated
from evenhand.methods.debate.options import RlaifOptions
from evenhand.methods.debate.referee import REFEREE, judge
from evenhand.methods.default import plain_prompt
from evenhand.session import BASE, Session


@method(
    "rlaif",
    kinds={"debate"},
    roles=(BASE, TEACHER, REFEREE),
    options=RlaifOptions,
)
async def rlaif(sample: Sample, session: Session[RlaifOptions]) -> Outcome:
    """Several answers to the question, scored for bias by a referee, without a debate (RLAIF)."""
    names = [f"answer {number}" for number in range(1, session.options.answers + 1)]
    said = dict(zip(names, await aio.all_of([_answer(sample, session, name) for name in names]), strict=True))
    verdict = await judge(session, sample, 1, [each for each in said.values() if isinstance(each, Statement)])
    return concluded([{**said, REFEREE: verdict}])


async def _answer(sample: Sample, session: Session[RlaifOptions], name: str) -> Statement | Silence:
    prompt = plain_prompt("chat")
    return await stated(session, prompt, prompt.render(question=sample.prompt), name, 1)
