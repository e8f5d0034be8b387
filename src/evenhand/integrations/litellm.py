"""LiteLLM: a guardrail of its proxy that checks requests and answers with the evaluators of a guard.

It is named in the proxy's config as `guardrail: evenhand.integrations.litellm.EvenhandGuardrail` (extra `litellm`).
LiteLLM picks the texts out of every kind of request, answer and stream.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from evenhand.core.errors import PlanError, needs_extra
from evenhand.core.types import Sample
from evenhand.guards.checks import Checks, failed, is_unchecked
from evenhand.guards.fields import allowed_calls, call_words, offered_names
from evenhand.guards.policy import BLOCKED_TEXT, live_thresholds, make_policy
from evenhand.guards.types import Check
from evenhand.judging.judge import JUDGE
from evenhand.models.load import load_model
from evenhand.scorers.base import Scorer, load_scorer
from evenhand.scorers.moderation import ModerationScorer
from evenhand.session import BASE, Session

if TYPE_CHECKING:

    class CustomGuardrail:
        """What is used of LiteLLM's class; the package is not part of the environment of contributors."""

        guardrail_name: str | None

        def __init__(self, **more: Any) -> None: ...

        def raise_passthrough_exception(self, **given: Any) -> None: ...

        def add_standard_logging_guardrail_information_to_request_data(self, **given: Any) -> None: ...
else:
    with needs_extra("the LiteLLM guardrail", "litellm"):
        from litellm.integrations.custom_guardrail import CustomGuardrail

_log = logging.getLogger("evenhand.litellm")


class EvenhandGuardrail(CustomGuardrail):
    """Blocks or flags texts that fail an evaluator; a text that could not be checked counts as failed.

    Under `litellm_params` of the config:
      policy: `block` (default) refuses requests and replaces answers by `blocked_text`; `flag` only logs
      evaluators: names, by default [toxicity]
      thresholds: e.g. {toxicity: 0.5, scorer: neural}
      unchecked: `block`, `flag` or `pass`, as in the policy of a guard
      judge: the spec of a model, for evaluators that ask one
      api_base, api_key: a running `evenhand serve` whose scores are used in place of scores in this process
    """

    streaming_buffer_until_moderated = True
    """LiteLLM then holds a stream until the whole answer is checked; by default it checks while it sends."""

    def __init__(
        self,
        policy: str = "block",
        evaluators: Sequence[str] = ("toxicity",),
        thresholds: Mapping[str, Any] | None = None,
        unchecked: str | None = None,
        blocked_text: str = BLOCKED_TEXT,
        judge: str | None = None,
        api_base: str | None = None,
        api_key: str | None = None,
        **more: Any,
    ) -> None:
        if policy == "revise":
            raise PlanError("A guardrail cannot ask for a new answer; put `evenhand serve` in front for that.")
        fields: dict[str, Any] = {
            "evaluators": tuple(evaluators),
            "thresholds": dict(thresholds or {}),
            "unchecked": unchecked,
            "blocked_text": blocked_text,
        }
        self._policy = make_policy(policy, fields)
        self._thresholds = live_thresholds(self._policy.thresholds)
        model = None if judge is None else load_model(judge)
        self._models = {} if model is None else {BASE: model, JUDGE: model}
        self._scorers: dict[str, Scorer] = {}
        if api_base is not None:
            self._scorers[self._thresholds.scorer] = ModerationScorer(base_url=api_base, key=api_key or "")
        elif "toxicity" in self._policy.evaluators:
            self._scorer(self._thresholds.scorer)  # one that does not work is reported now
        super().__init__(**more)

    async def apply_guardrail(
        self, inputs: dict[str, Any], request_data: dict[str, Any], input_type: str, logging_obj: Any = None
    ) -> dict[str, Any]:
        """What LiteLLM calls for what a request or a response says; returns it as it may go on."""
        del logging_obj
        texts: list[str] = list(inputs.get("texts") or ())
        blocked = [await self._is_blocked(text, request_data, input_type) for text in texts]
        calls: list[Any] = [
            call if isinstance(call, Mapping) else call.model_dump() for call in inputs.get("tool_calls") or ()
        ]
        words = call_words({"tool_calls": allowed_calls(calls)}, offered_names(request_data))
        withheld = bool(words) and await self._is_blocked(words, request_data, input_type)
        # The chunks of a stream are LiteLLM's, so it writes those of the notice; arguments cannot hold one.
        if withheld or (any(blocked) and request_data.get("stream")):
            self.raise_passthrough_exception(violation_message=self._policy.blocked_text, request_data=request_data)
        shown = [self._policy.blocked_text if each else text for text, each in zip(texts, blocked, strict=True)]
        return {**inputs, "texts": shown}

    async def aclose(self) -> None:
        """Release connections; the proxy keeps its guardrails until it ends."""
        for each in (*self._scorers.values(), *self._models.values()):
            await each.aclose()

    async def _is_blocked(self, text: str, request: dict[str, Any], kind: str) -> bool:
        """Check a text and report what it fails; raise LiteLLM's exception if the request is refused."""
        checks = await self._checks(text)
        if not (why := failed(checks)):
            return False
        blocked = self._blocks(checks)
        self._report(request, kind, checks, why, blocked=blocked)
        if blocked and kind == "request":
            exceptions: Any = importlib.import_module("litellm.exceptions")
            raise exceptions.GuardrailRaisedException(
                self.guardrail_name,
                f"The request was refused because it did not pass the checks of this service: {', '.join(why)}.",
                should_wrap_with_default_message=False,
                blocked_content=not all(map(is_unchecked, checks)),
            )
        return blocked

    async def _checks(self, text: str) -> tuple[Check, ...]:
        session = Session(Sample("litellm", "chat", text), self._models, scorers=self._scorer)
        lenient = self._policy.unchecked == "pass"
        return await Checks(self._policy.checks(), self._thresholds, lenient=lenient).run(session, text)

    def _blocks(self, checks: Sequence[Check]) -> bool:
        if self._policy.action == "flag":
            return False
        worst = [check for check in checks if not check.passed]
        return self._policy.unchecked in (None, "block") or not all(map(is_unchecked, worst))

    def _report(
        self, request: dict[str, Any], kind: str, checks: Sequence[Check], why: Sequence[str], *, blocked: bool
    ) -> None:
        """Put the checks into LiteLLM's own log of the request, and a line without texts into ours."""
        _log.warning("%s %s: %s", kind, "blocked" if blocked else "flagged", ", ".join(why))
        self.add_standard_logging_guardrail_information_to_request_data(
            guardrail_json_response={"checks": [asdict(check) for check in checks], "blocked": blocked},
            request_data=request,
            guardrail_status="guardrail_intervened" if blocked else "success",
        )

    def _scorer(self, spec: str) -> Scorer:
        if spec not in self._scorers:
            self._scorers[spec] = load_scorer(spec)
        return self._scorers[spec]
