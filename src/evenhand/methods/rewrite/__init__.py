"""Query rewriting: the model restates the question without what could bias, then answers the restatement.

1. The model restates the question without answering it.
2. A new call answers the restatement, as `default` does; it does not see the original question.

An empty restatement is not used: the question is answered as it is, and `stop` is `not_rewritten`.
"""

from __future__ import annotations

from dataclasses import replace

from evenhand.asking.chat import think
from evenhand.asking.choice import choose
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Outcome, Sample
from evenhand.core.untrusted import fenced
from evenhand.methods.base import WritingOptions, method
from evenhand.methods.default import plain_prompt
from evenhand.session import Session


@method("rewrite", kinds={"choice"}, options=WritingOptions)
async def rewrite(sample: Sample, session: Session[WritingOptions]) -> Outcome:
    """Query rewriting: restate the question without what could bias, then answer the restatement."""
    prompt = load_prompt(__file__, "question")
    asked = prompt.render(context=fenced(sample.context), question=fenced(sample.prompt))
    restated = await think(session, prompt, asked, session.options.params, agent="rewriter")
    question = replace(sample, prompt=restated or sample.prompt)
    result = await choose(session, question, plain_prompt("choice"))
    return Outcome(result, "done" if restated else "not_rewritten", notes={"restated": restated})
