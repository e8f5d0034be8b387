"""Direct preference optimization (Rafailov et al., 2023): a policy from pairs, without reward model and roll-outs.

The implicit reward of an answer is r(y) = β·(log π(y) − log π_ref(y)). The reference is the policy before training,
frozen. The loss is that of the reward model: −log σ(r(low bias) − r(high bias)).

Held-out pairs are evaluated by the implicit rewards: how often the less biased answer has the higher one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.core.progress import Count, ignore
from evenhand.training import data, models, stage
from evenhand.training.chat import Chat, Encoded
from evenhand.training.data import Preference
from evenhand.training.loop import BatchSampler, Optimizer, Schedule
from evenhand.training.losses import answer_logprobs, ranking_loss, torch
from evenhand.training.models import Machine
from evenhand.training.options import DPOOptions
from evenhand.training.reward import pair_accuracy


def train_dpo(options: DPOOptions, *, resume: bool = False, observe: Count = ignore) -> dict[str, Any]:
    """Train a policy on pairs and return the training's record; the folder `out` can then be used as hf/OUT."""
    files = data.find_files(options.data, "pairs")
    pairs = data.read_pairs(files.train)
    held_out = data.read_pairs(files.test) if files.test else []
    with stage.training_run("dpo", options, files.checksums(), resume=resume) as run:
        if run.finished:
            return run.record
        model = models.load_policy(options, run.machine)
        chat = models.chat_of(options, model)
        reference = models.frozen_reference(model, options.lora)
        models.prepare(model, options, run.machine)
        models.prepare(reference, options, run.machine)
        trainer = DPOTrainer(options, model, reference, chat, pairs, run.machine)
        steps = options.total_steps(len(pairs))
        ended = run.train(trainer, steps, observe)
        results: dict[str, Any] = {"pairs": len(pairs), "steps": steps}
        for metric in ("loss", "margin"):
            results |= run.first_and_last(metric, steps)
        results |= {f"held_out_{name}": value for name, value in trainer.evaluate(held_out).items()}
        models.save(model, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        return run.finish(ended, results)


class DPOTrainer:
    """Minimizes the ranking loss of implicit rewards, averaged over the pairs of a batch."""

    def __init__(
        self, options: DPOOptions, model: Any, reference: Any, chat: Chat, pairs: Sequence[Preference], machine: Machine
    ) -> None:
        self._model, self._reference, self._chat = model, reference, chat
        self._machine, self._beta = machine, options.beta
        self.rows = self._encode(pairs)
        self._micro_batch = options.micro_batch or options.batch
        self._sampler = BatchSampler(len(pairs), options.batch, options.seed)
        schedule = Schedule.of(options, len(pairs))
        self.optimizer = Optimizer([(models.trainable(model), options.lr)], schedule, team=machine.team)

    def step(self, number: int) -> Mapping[str, float]:
        rows = [self.rows[i] for i in self._sampler.rows(number)]
        metrics = dict.fromkeys(("loss", "accuracy", "margin", "chosen", "rejected"), 0.0)
        with models.adapter_dropout(self._model):
            for micro_batch, weight in self._machine.team.micro_batches(rows, self._micro_batch):
                chosen, rejected = self.rewards(micro_batch)
                share = len(micro_batch) / len(rows) * weight
                loss: Any = ranking_loss(chosen, rejected)
                (loss * share).backward()
                columns = (loss, (chosen > rejected).float(), chosen - rejected, chosen, rejected)
                for name, values in zip(metrics, columns, strict=True):
                    metrics[name] += float(values.detach().mean()) * share
        metrics = dict(zip(metrics, self._machine.team.all_sum(*metrics.values()), strict=True))
        return {**metrics, "grad_norm": self.optimizer.update()}

    def evaluate(self, pairs: Sequence[Preference]) -> dict[str, float]:
        """Return the accuracy of the implicit rewards on pairs, and the mean reward of each side."""
        if not pairs:
            return {}
        team, rows = self._machine.team, self._encode(pairs)
        own = [rows[i] for i in team.own_rows(len(rows))]
        with torch.no_grad():
            rewards = [self.rewards(chunk) for chunk in stage.chunks(own, self._micro_batch)]
        both = team.all_gather(len(rows), *(torch.cat(each) for each in zip(*rewards, strict=True)))
        chosen, rejected = (each.tolist() for each in both)
        means = {"chosen": sum(chosen) / len(chosen), "rejected": sum(rejected) / len(rejected)}
        return {**pair_accuracy(pairs, chosen, rejected), **means}

    def rewards(self, pairs: Sequence[tuple[Encoded, Encoded]]) -> tuple[Any, Any]:
        """Return the implicit rewards of the chosen and of the rejected answers."""
        # One pass for both sides gives them the same padding, and so the same rounding.
        rows = [row for pair in pairs for row in pair]
        with torch.no_grad(), models.as_reference(self._model, self._reference) as reference:
            reference_logprobs = self._logprobs(reference, rows)
        both = self._beta * (self._logprobs(self._model, rows) - reference_logprobs)
        return both[::2], both[1::2]

    def _logprobs(self, model: Any, rows: Sequence[Encoded]) -> Any:
        return answer_logprobs(model, self._chat, rows, self._machine)

    def _encode(self, pairs: Sequence[Preference]) -> list[tuple[Encoded, Encoded]]:
        encode = self._chat.encode
        return [(encode(pair.prompt, pair.chosen), encode(pair.prompt, pair.rejected)) for pair in pairs]
