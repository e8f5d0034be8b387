"""Search: the question without its passage, answered from what a search finds (MABRF's runs on SQuAD).

1. Five queries. 2. A search, whose pages are read. 3. A summary in which every fact has its source. 4. The answer from
these facts. Where the search brings nothing, the question is asked closed-book, and the outcome says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.asking.answer import answer
from evenhand.asking.evidence import SEARCH, search_agent
from evenhand.errors import PlanError
from evenhand.methods.base import method
from evenhand.methods.closed_book import question_prompt
from evenhand.prompts import load_prompt
from evenhand.search.base import check_spec
from evenhand.session import BASE, Session
from evenhand.types import Outcome, Sample, SampleKind


def check_options(kind: SampleKind, options: Mapping[str, Any]) -> None:
    """Refuses a search that cannot be, and numbers that make no sense."""
    del kind
    check_spec(str(options["provider"]))
    for name, least in (("results", 1), ("pages", 0)):
        value = options[name]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 20:
            raise PlanError(f"The option {name} of search is a whole number from {least} to 20, not {value!r}.")


@method("search", kinds={"answer"}, roles=(BASE, SEARCH), check=check_options, provider="ddgs", results=3, pages=2)
async def search(sample: Sample, session: Session) -> Outcome:
    """The question without its passage, answered from what a search finds."""
    agent = search_agent(session, str(session.options["provider"]))
    evidence = await agent.about_question(sample)
    prompt = load_prompt(__file__, "question") if evidence.facts else question_prompt()
    facts = {"facts": evidence.as_text()} if evidence.facts else {}
    result = await answer(session, sample, prompt, prompt.render(question=sample.prompt, **facts))
    return Outcome(result, "done" if evidence.facts else "without_evidence", notes=agent.note())
