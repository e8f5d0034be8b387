"""JSON evaluator: if the request asks for JSON, the answer must be valid JSON, before and after a revision."""

from __future__ import annotations

from evenhand.core.types import Answer, Sample
from evenhand.evaluators.base import Verdict, evaluator
from evenhand.reading.json_form import json_fault
from evenhand.session import Session


@evaluator("json", kinds={"chat"}, free=True)
async def json_form(sample: Sample, answer: Answer, session: Session) -> Verdict:
    """Brain: a rule. Toolbox: the request's JSON schema. Memory: none."""
    del sample
    fault = json_fault(answer.text, session.response_format)
    return Verdict(passed=not fault, critique=fault, details=fault or "the form that was asked for")
