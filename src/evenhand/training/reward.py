"""The reward model: the hidden state of an answer's last token → linear head → one number, higher for less bias.

It is a transformers sequence classifier with one output, so other tools can load it. Its loss on pairs is
−log σ(r(low bias) − r(high bias) − w·m); m is the difference of the referee's scores, and w is `margin_weight` (0 by
default, as in the paper). All scoring goes through `RewardModel.score`, which applies the chat template itself, so that
a score depends only on the words of a conversation and not on how they were tokenized elsewhere.

Not in the paper:
 - Pairs with worthless rejected answers are added (`negatives`), and the trained model is probed (see `probe`).
 - Length is a probe too: of held-out pairs whose lengths differ, the longer answer should have the higher reward in
   about half (`prefers_longer`, in the log as well).
 - An ensemble has several heads on one trunk. Each begins with other weights and is trained without a share of the
   prompts of its own. The reward is the mean of the heads minus their standard deviation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from evenhand.core.errors import UsageError
from evenhand.core.lazy import torch
from evenhand.core.progress import Count, ignore
from evenhand.stats.agreement import spearman
from evenhand.stats.intervals import clustered_share
from evenhand.training import data, models, stage
from evenhand.training.chat import MAX_LENGTH, Chat, Encoded
from evenhand.training.data import Preference, Prompt
from evenhand.training.loop import BatchSampler, Optimizer, Schedule
from evenhand.training.losses import ranking_loss
from evenhand.training.models import Machine
from evenhand.training.options import RewardOptions
from evenhand.training.probe import negatives, probe

if TYPE_CHECKING:
    from torch import Tensor


def token_values(model: Any, ids: Tensor, mask: Tensor, machine: Machine) -> Tensor:
    """Return the output of the head at every token, the mean of an ensemble's (float32, rows × width)."""
    return _token_outputs(model, ids, (mask.cumsum(-1) - 1).clamp(min=0), mask, machine).mean(-1)


def _token_outputs(model: Any, ids: Tensor, positions: Tensor, mask: Tensor | None, machine: Machine) -> Tensor:
    """Return the output of every head at every token (float32, rows × width × heads); no mask: rows are packed."""
    classifier = models.unwrapped(model)
    inputs = {"input_ids": ids, "position_ids": positions} | ({} if mask is None else {"attention_mask": mask})
    with machine.autocast():
        hidden = classifier.base_model(**inputs, use_cache=False).last_hidden_state
    return classifier.score(hidden.float())


class RewardModel:
    """Scores answers to prompts, `batch` of them in one forward pass."""

    def __init__(self, model: Any, chat: Chat, machine: Machine, batch: int = 32) -> None:
        self.model = model
        self.chat = chat
        self.machine = machine
        self._batch = batch

    @classmethod
    def load(
        cls, folder: str, machine: Machine | None = None, *, max_length: int = MAX_LENGTH, batch: int = 32
    ) -> RewardModel:
        """Load a trained reward model, frozen."""
        machine = machine or models.machine()
        model = models.load_classifier(folder, machine)
        return cls(models.frozen(model), models.load_chat(folder, model, max_length=max_length), machine, batch)

    def score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> list[float]:
        """Return the reward of each answer to its prompt."""
        rows = [self.chat.encode(*each) for each in zip(prompts, answers, strict=True)]
        own = [rows[i] for i in self.machine.team.own_rows(len(rows))]
        with torch.no_grad():
            outputs = torch.cat([self.outputs(chunk) for chunk in stage.chunks(own, self._batch)])
        rewards = outputs.mean(1) - outputs.std(1) if outputs.shape[1] > 1 else outputs[:, 0]
        (scores,) = self.machine.team.all_gather(len(rows), rewards)
        return scores.tolist()

    def outputs(self, rows: Sequence[Encoded]) -> Tensor:
        """Return the output of each head at the last token of each row (rows × heads), with gradients for training."""
        packed = self.chat.pack(rows, self.machine.device)
        outputs = _token_outputs(self.model, packed.ids, packed.positions, None, self.machine)
        return outputs.flatten(0, 1)[packed.last]


def train_reward(options: RewardOptions, *, resume: bool = False, observe: Count = ignore) -> dict[str, Any]:
    """Train a reward model on pairs and return the training's record."""
    files = data.find_files(options.data, "pairs")
    pairs = data.read_pairs(files.train)
    held_out = data.read_pairs(files.test) if files.test else []
    if options.margin_weight and any(pair.margin is None for pair in pairs):
        raise UsageError(
            "These pairs have no margins; make them again with `evenhand train pairs`, or leave the margin out."
        )
    added = negatives(pairs, options.negatives, options.seed)
    with stage.training_run("reward", options, files.checksums(), resume=resume) as run:
        if run.finished:
            return run.record
        model, chat = _new_model(options, run.machine)
        models.prepare(model, options, run.machine)
        reward = RewardModel(model, chat, run.machine, options.micro_batch or options.batch)
        trainer = RewardTrainer(options, reward, [*pairs, *added])
        steps = options.total_steps(len(pairs) + len(added))
        ended = run.train(trainer, steps, observe)
        sizes = {"pairs": len(pairs), "negatives": len(added), "steps": steps}
        results: dict[str, object] = {**sizes, **run.first_and_last("loss", steps)}
        results |= {f"held_out_{name}": value for name, value in evaluate(reward, held_out).items()}
        results["probe"] = probe(reward.score, held_out or pairs, options.seed)
        models.save(model, chat, options.out, run.machine)
        return run.finish(ended, results)


def evaluate(reward: RewardModel, pairs: Sequence[Preference]) -> dict[str, object]:
    """Return the accuracy of a reward model on pairs, in all and by type of bias, and what length has to do with it."""
    if not pairs:
        return {}
    prompts = [pair.prompt for pair in pairs]
    chosen = reward.score(prompts, [pair.chosen for pair in pairs])
    rejected = reward.score(prompts, [pair.rejected for pair in pairs])
    scored = list(zip(pairs, chosen, rejected, strict=True))
    by_type = {
        bias: pair_accuracy(*zip(*(row for row in scored if row[0].bias == bias), strict=True))
        for bias in dict.fromkeys(pair.bias for pair in pairs if pair.bias)
    }
    return {
        **pair_accuracy(pairs, chosen, rejected),
        **about_length(pairs, chosen, rejected),
        **({"by_type": by_type} if by_type else {}),
    }


def about_length(pairs: Sequence[Preference], chosen: Sequence[float], rejected: Sequence[float]) -> dict[str, object]:
    """Return what length has to do with being better, and with the reward.

    `longer_wins` is the accuracy of the rule "the longer answer is better" (equal lengths count half). `prefers_longer`
    is the share of pairs of which the longer answer has the higher reward, with its interval by prompt.
    """
    better, worse = ([len(getattr(pair, side).split()) for pair in pairs] for side in ("chosen", "rejected"))
    excess = [one - two for one, two in zip(better, worse, strict=True)]
    rows = zip(pairs, excess, chosen, rejected, strict=True)
    trials = [(pair.prompt, (one > two) == (longer > 0)) for pair, longer, one, two in rows if longer]
    found: dict[str, object] = {
        "longer_wins": fmean((each > 0) + 0.5 * (each == 0) for each in excess),
        "length_correlation": spearman([*chosen, *rejected], [*better, *worse]),
    }
    if trials:
        share = clustered_share(trials)
        names = ("prefers_longer", "prefers_longer_low", "prefers_longer_high")
        found |= dict(zip(names, (share.estimate, share.low, share.high), strict=True))
    return found


def pair_accuracy(pairs: Sequence[Preference], chosen: Sequence[float], rejected: Sequence[float]) -> dict[str, Any]:
    """Return the share of pairs whose chosen answer has the higher reward, with its interval, and the mean margin.

    A tie counts as wrong. Pairs of one prompt are not independent, so the interval is clustered by prompt; that of a
    single prompt is undefined.
    """
    margins = [better - worse for better, worse in zip(chosen, rejected, strict=True)]
    by_prompt: dict[Prompt, list[bool]] = {}
    for pair, margin in zip(pairs, margins, strict=True):
        by_prompt.setdefault(pair.prompt, []).append(margin > 0)
    interval = clustered_share((pair.prompt, margin > 0) for pair, margin in zip(pairs, margins, strict=True))
    return {
        "pairs": len(margins),
        "topics": len(by_prompt),
        "topics_below_half": sum(2 * sum(right) < len(right) for right in by_prompt.values()),
        "accuracy": sum(margin > 0 for margin in margins) / len(margins),
        "accuracy_low": interval.low,
        "accuracy_high": interval.high,
        "margin": sum(margins) / len(margins),
    }


def _new_model(options: RewardOptions, machine: Machine) -> tuple[Any, Chat]:
    """Make a classifier with a new head from the language model that the options name."""
    causal = models.load_causal(options.model, machine, trained=options.lora is None)
    chat = models.chat_of(options, causal)
    model = models.classifier_of(causal, chat, options.seed, heads=options.ensemble)
    if options.lora is not None:
        model = models.with_adapters(
            model, options.lora, options.lora_layers, dropout=options.lora_dropout, head=models.HEAD
        )
    return model, chat


@dataclass(frozen=True, slots=True)
class EncodedPair:
    """A pair to train on."""

    chosen: Encoded
    rejected: Encoded
    margin: float
    """By how much the rewards should differ at least."""
    heads: tuple[bool, ...]
    """Which heads are trained on it."""


class RewardTrainer:
    """Minimizes the ranking loss, averaged over the pairs of a batch."""

    def __init__(self, options: RewardOptions, reward: RewardModel, pairs: Sequence[Preference]) -> None:
        self._reward = reward
        encode, heads = reward.chat.encode, range(options.ensemble)
        place = {prompt: number for number, prompt in enumerate(dict.fromkeys(pair.prompt for pair in pairs))}
        self._rows = [
            EncodedPair(
                encode(pair.prompt, pair.chosen),
                encode(pair.prompt, pair.rejected),
                options.margin_weight * (pair.margin or 0.0),
                tuple(options.ensemble == 1 or place[pair.prompt] % options.ensemble != k for k in heads),
            )
            for pair in pairs
        ]
        self._micro_batch = options.micro_batch or options.batch
        self._sampler = BatchSampler(len(pairs), options.batch, options.seed)
        schedule = Schedule.of(options, len(pairs))
        self.optimizer = Optimizer([(models.trainable(reward.model), options.lr)], schedule, team=reward.machine.team)

    def step(self, number: int) -> Mapping[str, float]:
        rows = [self._rows[i] for i in self._sampler.rows(number)]
        team = self._reward.machine.team
        loss, right, margin, longer = 0.0, 0, 0.0, 0
        uneven = [len(row.chosen.answer) != len(row.rejected.answer) for row in rows]
        with models.adapter_dropout(self._reward.model):
            for micro_batch, weight in team.micro_batches(rows, self._micro_batch):
                # One pass for both sides gives them the same padding, and so the same rounding.
                both = self._reward.outputs([side for row in micro_batch for side in (row.chosen, row.rejected)])
                chosen, rejected = both[::2], both[1::2]
                wanted = both.new_tensor([[row.margin] for row in micro_batch])
                trained = torch.tensor([row.heads for row in micro_batch], device=both.device)
                loss_of_rows = ranking_loss((chosen - wanted)[trained], rejected[trained])
                share: Any = loss_of_rows * len(micro_batch) / len(rows) * weight
                share.backward()
                margins = (chosen - rejected).detach().mean(1) * weight
                excess = margins.new_tensor([len(row.chosen.answer) - len(row.rejected.answer) for row in micro_batch])
                longer += int((margins * excess > 0).sum())
                loss, right = loss + share.item(), right + int((margins > 0).sum())
                margin += float(margins.sum())
        loss, right, margin, longer = team.all_sum(loss, right, margin, longer)
        metrics = {"loss": loss, "accuracy": right / len(rows), "margin": margin / len(rows)}
        if any(uneven):
            metrics["prefers_longer"] = longer / sum(uneven)
        return {**metrics, "grad_norm": self.optimizer.update()}
