"""Direct preference optimization (Rafailov et al., 2023): from pairs to a policy, without reward model or roll-outs.

The policy's own reward for an answer is implicit: r(y) = β·(log π(y) − log π_ref(y)), where the reference is the policy
as it began, frozen. It learns from pairs by the loss of the reward model, −log σ(r(low bias) − r(high bias)).

Held-out pairs are judged by the implicit rewards: how often the less biased answer has the higher one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.training import data, models, stage
from evenhand.training.chat import Chat, Encoded
from evenhand.training.data import Pair
from evenhand.training.loop import Observer, Order, nobody, train
from evenhand.training.losses import answer_logprobs, ranking_loss, torch
from evenhand.training.models import Machine
from evenhand.training.optimizer import Optimizer, Schedule
from evenhand.training.options import DPOOptions
from evenhand.training.reward import told_apart


def train_dpo(options: DPOOptions, *, resume: bool = False, observe: Observer = nobody) -> dict[str, Any]:
    """Train a policy on pairs and return the record of it; the folder `out` can then be used as hf/OUT."""
    files = data.files(options.data, "pairs")
    pairs = data.read_pairs(files.train)
    held_out = data.read_pairs(files.test) if files.test else []
    with stage.begun("dpo", options, files.sums(), resume=resume) as run:
        if run.finished:
            return run.record
        model = models.load_policy(options, run.machine)
        chat = models.chat_of(options, model)
        reference = models.reference_of(model, options.lora)
        models.arrange(model, options, run.machine)
        models.arrange(reference, options, run.machine)
        work = DPO(options, model, reference, chat, pairs, run.machine)
        steps = options.total_steps(len(pairs))
        ended = train(work, options.out, steps=steps, seed=options.seed, save_every=options.save_every, observe=observe)
        results = {"pairs": len(pairs), "steps": steps, **run.last("loss", steps), **run.last("margin", steps)}
        results |= {f"held_out_{name}": value for name, value in work.judged(held_out).items()}
        models.save(model, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        return run.finish(ended, results)


class DPO:
    """The ranking loss of implicit rewards, averaged over the pairs of a batch, for the training loop."""

    def __init__(
        self, options: DPOOptions, model: Any, reference: Any, chat: Chat, pairs: Sequence[Pair], machine: Machine
    ) -> None:
        self._model, self._reference, self._chat = model, reference, chat
        self._machine, self._beta = machine, options.beta
        self.rows = self._encoded(pairs)
        self._at_once = options.micro_batch or options.batch
        self._order = Order(len(pairs), options.batch, options.seed)
        schedule = Schedule(options.total_steps(len(pairs)))
        self.optimizer = Optimizer([(models.trainable(model), options.rate)], schedule, team=machine.team)

    def step(self, number: int) -> Mapping[str, float]:
        rows = [self.rows[i] for i in self._order.rows(number)]
        measured = dict.fromkeys(("loss", "accuracy", "margin", "chosen", "rejected"), 0.0)
        for part, weight in self._machine.team.parts(rows, self._at_once):
            chosen, rejected = self.rewards(part)
            share = len(part) / len(rows) * weight
            loss = ranking_loss(chosen, rejected)
            (loss * share).backward()
            means = (loss, (chosen > rejected).float(), chosen - rejected, chosen, rejected)
            for name, values in zip(measured, means, strict=True):
                measured[name] += float(values.detach().mean()) * share
        measured = dict(zip(measured, self._machine.team.summed(*measured.values()), strict=True))
        return {**measured, "gradient": self.optimizer.update()}

    def judged(self, pairs: Sequence[Pair]) -> dict[str, float]:
        """How the implicit rewards tell pairs apart."""
        if not pairs:
            return {}
        team, rows = self._machine.team, self._encoded(pairs)
        mine = [rows[i] for i in team.rows(len(rows))]
        with torch.no_grad():
            found = [self.rewards(part) for part in stage.parts(mine, self._at_once)]
        both = team.gathered(len(rows), *(torch.cat(each) for each in zip(*found, strict=True)))
        chosen, rejected = (each.tolist() for each in both)
        means = {"chosen": sum(chosen) / len(chosen), "rejected": sum(rejected) / len(rejected)}
        return {**told_apart(chosen, rejected), **means}

    def rewards(self, pairs: Sequence[tuple[Encoded, Encoded]]) -> tuple[Any, Any]:
        """The implicit rewards of the less and of the more biased answers."""
        # One pass for both: they share their padding, and with it the rounding.
        rows = [row for pair in pairs for row in pair]
        reference, acting = models.as_reference(self._model, self._reference)
        with torch.no_grad(), acting:
            before = self._logprobs(reference, rows)
        both = self._beta * (self._logprobs(self._model, rows) - before)
        return both[::2], both[1::2]

    def _logprobs(self, model: Any, rows: Sequence[Encoded]) -> Any:
        return answer_logprobs(model, self._chat, rows, self._machine).sum(1)

    def _encoded(self, pairs: Sequence[Pair]) -> list[tuple[Encoded, Encoded]]:
        encode = self._chat.encode
        return [(encode(pair.prompt, pair.chosen), encode(pair.prompt, pair.rejected)) for pair in pairs]
