"""Search: the question without its passage, answered from what a search finds (MABRF's runs on SQuAD).

1. Five queries. 2. A search, whose pages are read. 3. A summary in which every fact has its source. 4. The answer from
these facts. Where the search brings nothing, the question is asked closed-book, and the outcome says so.
"""

from __future__ import annotations

from pydantic import Field

from evenhand.asking.answer import answer
from evenhand.asking.evidence import SEARCH, search_agent
from evenhand.methods.base import method
from evenhand.methods.closed_book import question_prompt
from evenhand.options import Options, Text
from evenhand.prompts import load_prompt
from evenhand.search.base import check_spec
from evenhand.session import BASE, Session
from evenhand.types import Outcome, Sample, SampleKind


class SearchOptions(Options):
    """What is searched, and how much of it is read."""

    provider: Text = Field(default="ddgs", description="The search provider; see evenhand search --list.")
    results: int = Field(default=3, ge=1, le=20, description="Results of each query.")
    pages: int = Field(default=2, ge=0, le=20, description="Of these, how many pages are read.")


def _check(kind: SampleKind, options: SearchOptions) -> None:
    del kind
    check_spec(options.provider)


@method("search", kinds={"answer"}, roles=(BASE, SEARCH), options=SearchOptions, check=_check)
async def search(sample: Sample, session: Session[SearchOptions]) -> Outcome:
    """The question without its passage, answered from what a search finds."""
    options = session.options
    agent = search_agent(session, options.provider, results=options.results, pages=options.pages)
    evidence = await agent.about_question(sample)
    prompt = load_prompt(__file__, "question") if evidence.facts else question_prompt()
    facts = {"facts": evidence.as_text()} if evidence.facts else {}
    result = await answer(session, sample, prompt, prompt.render(question=sample.prompt, **facts))
    return Outcome(result, "done" if evidence.facts else "without_evidence", notes=agent.note())
