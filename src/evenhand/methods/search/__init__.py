"""Search: answers the question without its passage, from search results (MABRF's runs on SQuAD).

1. The model writes five queries.
2. The search provider is queried and the result pages are read.
3. The model summarises the pages; every fact has its source.
4. The model answers from these facts.

If the search finds nothing, the question is asked closed-book and `stop` is `without_evidence`. With `passage`, the
passage is shown as well, as in the authors' notebooks.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from evenhand.asking.answer import answer
from evenhand.asking.web import QUERIES, SEARCH, Evidence, search_agent
from evenhand.core.options import Options, Text
from evenhand.core.presets import Presets
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Outcome, Result, Sample, SampleKind
from evenhand.core.untrusted import fenced
from evenhand.methods.base import method
from evenhand.methods.closed_book import question_prompt
from evenhand.search.base import check_spec
from evenhand.session import BASE, Session


class SearchOptions(Options):
    presets: ClassVar = Presets.beside(__file__)

    provider: Text = Field(default="ddgs", description="The search provider; see evenhand data search --list.")
    passage: bool = Field(default=False, description="Whether the passage is shown beside what the search finds.")
    queries: int = Field(default=QUERIES, ge=1, le=QUERIES, description="Number of the five queries that are searched.")
    results: int = Field(default=3, ge=1, le=20, description="Number of results per query.")
    pages: int = Field(default=2, ge=0, le=20, description="Number of result pages that are read.")


def _check(kind: SampleKind, options: SearchOptions) -> None:
    del kind
    check_spec(options.provider)


@method("search", kinds={"answer"}, roles=(BASE, SEARCH), options=SearchOptions, check=_check)
async def search(sample: Sample, session: Session[SearchOptions]) -> Outcome:
    """The question without its passage, answered from what a search finds."""
    options = session.options
    agent = search_agent(
        session, options.provider, queries=options.queries, results=options.results, pages=options.pages
    )
    evidence = await agent.about_question(sample)
    result = (
        await _with_passage(sample, session, evidence) if options.passage else await _from(sample, session, evidence)
    )
    return Outcome(result, "done" if evidence.facts else "without_evidence", notes=agent.note())


async def _from(sample: Sample, session: Session, evidence: Evidence) -> Result:
    """Answers from the facts; without any, as closed book."""
    prompt = load_prompt(__file__, "question") if evidence.facts else question_prompt()
    facts = {"facts": evidence.as_text()} if evidence.facts else {}
    return await answer(session, sample, prompt, prompt.render(question=sample.prompt, **facts))


async def _with_passage(sample: Sample, session: Session, evidence: Evidence) -> Result:
    """Answers from the facts and the passage; without facts, from the passage alone."""
    prompt = load_prompt(__file__, "passage")
    shown = {"facts": evidence.as_text() or "nothing was found", "context": fenced(sample.context)}
    return await answer(session, sample, prompt, prompt.render(question=fenced(sample.prompt), **shown))
