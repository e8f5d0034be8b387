"""Which KL divergence each form of `kl_in` is the gradient of, by all answers that a tiny vocabulary can write."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.training import losses  # noqa: E402 - they need torch
from evenhand.training.models import Machine  # noqa: E402
from evenhand.training.ppo import Experience, PPOTrainer  # noqa: E402
from evenhand.training.rollout import Rollout  # noqa: E402

END, WORDS, LONGEST = 0, (1, 2), 3
PREFIXES = [prefix for length in range(LONGEST) for prefix in product(WORDS, repeat=length)]
ANSWERS = [(*prefix, END) for prefix in PREFIXES] + list(product(WORDS, repeat=LONGEST))
PLACES = [[PREFIXES.index(answer[:t]) for t in range(len(answer))] for answer in ANSWERS]
BETA = 0.3


class Tables:
    """A policy and its reference: the log probability of each token after each prefix."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.logits = torch.randn(len(PREFIXES), 1 + len(WORDS), dtype=torch.float64, requires_grad=True)
        self.reference = torch.randn_like(self.logits).log_softmax(-1)

    @property
    def policy(self) -> Any:
        return self.logits.log_softmax(-1)

    def of_answers(self, table: Any) -> Any:
        """The log probability of every token of every answer (answers × tokens)."""
        rows = [torch.stack([table[p, t] for p, t in zip(*each, strict=True)]) for each in self.steps]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)

    steps = tuple(zip(PLACES, ANSWERS, strict=True))

    def gradient(self, value: Any) -> Any:
        return torch.autograd.grad(value, self.logits)[0]

    def whole_answers(self) -> Any:
        """KL(policy‖reference) of the distributions of answers."""
        own, other = (self.of_answers(each).sum(1) for each in (self.policy, self.reference))
        return (own.exp() * (own - other)).sum()

    def next_tokens(self) -> Any:
        """KL(reference‖policy) of the next token, summed over prefixes as often as the policy writes them."""
        written: dict[tuple[int, ...], Any] = {(): torch.tensor(1.0, dtype=torch.float64)}
        for prefix in PREFIXES[1:]:
            written[prefix] = written[prefix[:-1]] * self.policy[PREFIXES.index(prefix[:-1]), prefix[-1]].exp()
        divergence = (self.reference.exp() * (self.reference - self.policy)).sum(-1)
        return (torch.stack([written[prefix] for prefix in PREFIXES]).detach() * divergence).sum()


@pytest.fixture
def tables() -> Tables:
    return Tables()


def expected_gradient(tables: Tables, kl_in: str, algorithm: str) -> Any:
    """The trainer's gradient, in expectation over the answers (of RLOO: over pairs of them), for a constant reward."""
    mask = torch.tensor([[float(t < len(answer)) for t in range(LONGEST)] for answer in ANSWERS], dtype=torch.float64)
    ended = [END in answer for answer in ANSWERS]
    rollout = Rollout(torch.arange(len(ANSWERS))[:, None], mask, mask, [""] * len(ANSWERS), ended, mask)
    options = SimpleNamespace(gamma=1.0, lam=1.0, algorithm=algorithm, answers_per_prompt=2, clip=0.2, kl_in=kl_in)
    own, other = tables.of_answers(tables.policy), tables.of_answers(tables.reference)

    trainer: Any = PPOTrainer.__new__(PPOTrainer)
    trainer._options, trainer._machine = options, Machine("cpu", "float32")
    trainer._models = SimpleNamespace(critic=True if algorithm == "ppo" else None, actor=None)
    trainer._assessor = SimpleNamespace(
        logprobs=lambda _, part: (own[part.ids[:, 0]], None),
        values=lambda part: part.answer * 0,
        for_all=lambda compute, part: compute(part),
    )
    trainer.optimizer = SimpleNamespace(kept={"kl_coefficient": torch.tensor(BETA)})
    before = own.detach()
    penalties = losses.kl_rewards(before, other, mask, BETA if kl_in == "reward" else 0.0)
    probabilities = before.sum(1).exp()

    def loss(rows: list[int]) -> Any:
        """Of some answers, which are one batch: summed over tokens, weighted by how likely they are."""
        part, scores = rollout.select(rows), torch.full((len(rows),), 5.0, dtype=torch.float64)
        advantages, _, _ = trainer._advantages([], part, scores, penalties[rows])
        experience = Experience(part, before[rows], other[rows], advantages)
        found = 0.0
        for row in range(len(rows)):
            each = trainer._actor_losses(experience.select([row]))
            tokens = part.answer[row].sum()
            found += sum(value for name, value in each.items() if name.endswith("_loss")) * tokens * weight(rows, row)
        return found

    def weight(rows: list[int], row: int) -> Any:
        return probabilities[rows[row]] if algorithm == "ppo" else probabilities[rows].prod() / len(rows)

    whole = range(len(ANSWERS))
    batches = [list(whole)] if algorithm == "ppo" else [list(pair) for pair in product(whole, repeat=2)]
    return tables.gradient(sum(map(loss, batches)))


@pytest.mark.parametrize("algorithm", ["ppo", "rloo"])
def test_in_the_reward_it_is_that_of_the_policy_from_the_reference(tables: Tables, algorithm: str):
    found = expected_gradient(tables, "reward", algorithm)

    torch.testing.assert_close(found, BETA * tables.gradient(tables.whole_answers()), atol=1e-6, rtol=0)


@pytest.mark.parametrize("algorithm", ["ppo", "rloo"])
def test_in_the_loss_it_is_that_of_the_reference_from_the_policy(tables: Tables, algorithm: str):
    found = expected_gradient(tables, "loss", algorithm)

    torch.testing.assert_close(found, BETA * tables.gradient(tables.next_tokens()), atol=1e-6, rtol=0)


def test_they_are_not_the_same(tables: Tables):
    one, other = tables.gradient(tables.whole_answers()), tables.gradient(tables.next_tokens())

    assert float((one * other).sum() / one.norm() / other.norm()) < 0.95
