"""Measures the reference before the first step of PPO, and the actor before every checkpoint, on the same prompts.

With `choose_by`, a scorer that training does not optimise rates these answers, so that the best checkpoint is kept.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Any

from evenhand.benchmarks.opinions import opinion_scales
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.events import event
from evenhand.core.lazy import torch
from evenhand.core.types import Unscored
from evenhand.judging.scorers import QUALITIES
from evenhand.scorers.base import Scorer, Scores, load_scorer
from evenhand.training import drift, stage
from evenhand.training.data import Prompt
from evenhand.training.drift import Measures
from evenhand.training.loop import CheckpointCheck, step_seed
from evenhand.training.models import Machine
from evenhand.training.options import PPOOptions
from evenhand.training.ppo.assessor import Assessor, Baseline, PPOModels

_HIGHER_IS_BETTER = {*QUALITIES, *(scale.name for scale in opinion_scales() if scale.better == "higher")}


class Chooser:
    """Rates answers from 0 to 1, higher for the better ones."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._scorer: Scorer = load_scorer(spec)

    def rate(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> float:
        """Return the mean rating. An empty answer has 0; what the scorer cannot score is left out."""
        contexts = [prompt[-1].content for prompt in prompts]
        found = aio.run_lasting(self._scorer.score(answers, contexts))
        ratings = [_rating(each, answer) for each, answer in zip(found, answers, strict=True)]
        rated = [rating for rating in ratings if rating is not None]
        if not rated:
            reason = next(each.reason for each in found if isinstance(each, Unscored))
            raise UsageError(f"The scorer {self._spec} scored no answer: {reason}.")
        return sum(rated) / len(rated)

    def close(self) -> None:
        aio.run_lasting(self._scorer.aclose())


def _rating(scores: Scores | Unscored, answer: str) -> float | None:
    """Return the mean of all scores, each turned so that higher is better."""
    if not answer.strip():
        return 0.0
    if isinstance(scores, Unscored):
        return None
    turned = [value if name in _HIGHER_IS_BETTER else 1 - value for name, value in scores.items()]
    return sum(turned) / len(turned)


REFERENCE = "reference.json"
_MEASURED = 64
"""Answers of the reference that give the scale of the rewards, and answers to held-out prompts before a checkpoint."""
_NO_DEVIATION = 1e-6
"""Smaller standard deviations are rounding."""


class CheckpointChecks:
    """The scale of the rewards, and how far the actor has drifted from the reference."""

    def __init__(
        self,
        options: PPOOptions,
        loaded: PPOModels,
        assessor: Assessor,
        machine: Machine,
        prompts: Sequence[Prompt],
        held_out: Sequence[Prompt],
        steps: int,
    ) -> None:
        """`steps` is the number of all steps of the training."""
        self._options, self._models, self._assessor, self._machine = options, loaded, assessor, machine
        self._prompts, self._held_out, self._steps = prompts, held_out, steps
        self.chooser: Chooser | None = None

    def measure_reference(self, *, resume: bool) -> None:
        """Measure the reference's answers, or read what was measured when the training began; warn if many are cut."""
        self._measure_reference(resume=resume)
        checked = self._assessor.baseline.checked
        assert checked is not None
        warning = drift.too_short(checked.unfinished, self._options.max_new_tokens)
        if warning and self._machine.team.is_main:
            event("training", warning, level=logging.WARNING)

    @torch.no_grad()
    def _measure_reference(self, *, resume: bool) -> None:
        o, team = self._options, self._machine.team
        path = o.out / REFERENCE
        if resume and path.is_file():
            stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            checked = Measures(**stored.pop("checked"))
            self._assessor.baseline = Baseline(**stored, checked=checked)
            return
        torch.manual_seed(step_seed(o.seed, self._steps))
        if o.reward_range:
            with self._models.as_reference() as reference:
                mean, deviation = self._reward_scale(reference)
            self._assessor.baseline = Baseline(mean, deviation)
        self._assessor.baseline = replace(self._assessor.baseline, checked=self._measured(self._models.as_reference))
        text = json.dumps(asdict(self._assessor.baseline), indent=2) + "\n"
        team.on_main(lambda: path.write_text(text, encoding="utf-8"))

    @torch.no_grad()
    def check(self, done: int) -> CheckpointCheck:
        """Measure the actor's answers to held-out prompts, for the training loop."""
        reference = self._assessor.baseline.checked
        assert reference is not None
        if done == 0:
            return CheckpointCheck(score=reference.score)
        measures = self._measured(lambda: contextlib.nullcontext(self._models.actor))
        breach = drift.breach(measures, reference, self._options) if self._options.drift_limits else None
        return CheckpointCheck(measures.as_metrics(), breach, measures.score)

    def _reward_scale(self, reference: Any) -> tuple[float, float]:
        """Return the mean and the standard deviation of the rewards of the reference's finished answers."""
        rewards: list[tuple[float, bool]] = []
        for chunk in self._measuring_chunks(self._prompts):
            rollout = self._assessor.roll_out(reference, chunk)
            rewards += zip(self._assessor.rewards(chunk, rollout), rollout.ended, strict=True)
        finished = [reward for reward, ended in rewards if ended]
        counted = finished if len(finished) > 1 else [reward for reward, _ in rewards]
        deviation, mean = torch.std_mean(torch.tensor(counted, dtype=torch.float64))
        return float(mean), float(deviation) if deviation > _NO_DEVIATION else 1.0

    def _measured(self, as_policy: Callable[[], AbstractContextManager[Any]]) -> Measures:
        """Measure a policy's answers to held-out prompts, always with the same random numbers."""
        o = self._options
        torch.manual_seed(step_seed(o.seed, self._steps))
        texts: list[str] = []
        rewards: list[float] = []
        tokens = entropy = kl = ended = 0.0
        prompts: list[Prompt] = []
        for chunk in self._measuring_chunks(self._held_out or self._prompts):
            with as_policy() as policy:
                rollout = self._assessor.roll_out(policy, chunk)
                logprobs, entropies = self._assessor.for_all(
                    lambda part, p=policy: self._assessor.logprobs(p, part), rollout
                )
            with self._models.as_reference() as reference:
                references, _ = self._assessor.for_all(
                    lambda part, p=reference: self._assessor.logprobs(p, part), rollout
                )
            prompts += chunk
            texts += rollout.texts
            rewards += self._assessor.rewards(chunk, rollout)
            tokens += float(rollout.answer.sum())
            entropy += float((entropies * rollout.answer).sum())
            kl += float(((logprobs - references) * rollout.answer).sum())
            ended += sum(rollout.ended)
        count = len(texts)
        return Measures(
            length=tokens / count,
            entropy=entropy / tokens,
            kl=kl / tokens,
            openings=drift.most_frequent_opening(texts),
            unfinished=1 - ended / count,
            reward=sum(rewards) / count,
            score=self._score(prompts, texts),
        )

    def _measuring_chunks(self, prompts: Sequence[Prompt]) -> Iterator[Sequence[Prompt]]:
        """Yield a fixed choice of prompts, as many at once as in a step."""
        generator = torch.Generator().manual_seed(step_seed(self._options.seed, 0))
        order: list[int] = torch.randperm(len(prompts), generator=generator).tolist()
        chosen = [prompts[order[i % len(order)]] for i in range(_MEASURED)]
        return stage.chunks(chosen, max(16, self._options.batch * self._options.answers_per_prompt))

    def _score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> float | None:
        """Return what the scorer of `choose_by` says, which only the main process asks."""
        chooser = self.chooser
        return self._machine.team.on_main(lambda: None if chooser is None else chooser.rate(prompts, answers))
