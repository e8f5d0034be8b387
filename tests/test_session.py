"""The session: models by role, a record of every call, and randomness that can be repeated."""

import pytest

from evenhand.core.errors import BadResponseError, BudgetExhausted, PlanError
from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Generation, Params, Sample, Turn
from evenhand.models.fake import FunctionModel
from evenhand.session import Session

PROMPT = parse_prompt("test/ask", "# user\nWho?\n")
QUESTION = PROMPT.render()
SAMPLE = Sample("s1", "choice", "Who?")


def fake(text: str = "B") -> FunctionModel:
    return FunctionModel(lambda *_: text)


async def test_a_call_is_recorded_with_all_that_is_needed_to_repeat_it():
    told: list[Turn] = []

    async def tell(turn: Turn) -> None:
        told.append(turn)

    session = Session(SAMPLE, {"base": fake()}, on_turn=tell)

    generation = await session.ask(PROMPT, QUESTION, Params(temperature=0), agent="answerer")

    turn = Turn("answerer", "base", "test/ask", PROMPT.hash, QUESTION, Params(temperature=0), generation)
    assert session.trace == told == [turn]


@pytest.mark.parametrize(
    ("error", "reason"), [(BadResponseError("broken"), "broken"), (KeyError("choices"), "KeyError: 'choices'")]
)
async def test_a_failed_call_is_recorded_and_raised(error: Exception, reason: str):
    session = Session(SAMPLE, {"base": FunctionModel(lambda *_: error)})

    with pytest.raises(type(error)):
        await session.ask(PROMPT, QUESTION, Params(), agent="answerer")

    assert [(turn.generation, turn.error) for turn in session.trace] == [(None, reason)]


async def test_a_call_that_the_budget_did_not_allow_is_no_call():
    session = Session(SAMPLE, {"base": FunctionModel(lambda *_: BudgetExhausted("used up"))})

    with pytest.raises(BudgetExhausted):
        await session.ask(PROMPT, QUESTION, Params(), agent="answerer")

    assert session.trace == []


async def test_roles_without_a_model_use_the_base_model():
    base, judge = fake("base"), fake("judge")
    session = Session(SAMPLE, {"base": base, "judge": judge})

    said = [
        (await session.ask(PROMPT, QUESTION, Params(), agent="x", role=role)).text
        for role in ("base", "judge", "critic")
    ]

    assert said == ["base", "judge", "base"]


def test_no_model_at_all_is_told():
    with pytest.raises(PlanError, match="No model is given for the role 'base'"):
        Session(SAMPLE, {}).model()


async def test_a_call_that_was_made_before_is_not_made_again():
    model = fake()
    earlier = Generation((), "fake/earlier")

    def look_up(role: str, messages: object, params: Params) -> Generation | None:
        return earlier if role == "base" else None

    session = Session(SAMPLE, {"base": model}, look_up=look_up)

    assert await session.ask(PROMPT, QUESTION, Params(), agent="x") is earlier
    assert model.requests == []


def test_the_permutation_depends_on_sample_and_seed_alone():
    def order(sample: str, seed: int, **options: int) -> tuple[int, ...]:
        return Session(Sample(sample, "choice", ""), {}, seed, options).permutation(8)

    assert order("s1", 0) == order("s1", 0, max_tokens=3)
    assert order("s1", 0) != order("s2", 0)
    assert order("s1", 0) != order("s1", 1)
    assert sorted(order("s1", 0)) == list(range(8))


def test_over_many_samples_every_order_is_as_frequent_as_any_other():
    orders = [Session(Sample(f"s{number}", "choice", ""), {}).permutation(3) for number in range(600)]

    counts = [orders.count(order) for order in set(orders)]

    assert len(counts) == 6
    assert 70 <= min(counts) <= max(counts) <= 135


def test_the_permutation_is_the_same_on_every_machine():
    orders = [Session(Sample(name, "choice", ""), {}).permutation(3) for name in ("a", "b", "c", "d")]

    assert orders == [(0, 2, 1), (1, 0, 2), (2, 1, 0), (0, 1, 2)]


def test_purposes_have_randomness_of_their_own():
    session = Session(SAMPLE, {})

    assert session.random("a").random() == session.random("a").random()
    assert session.random("a").random() != session.random("b").random()


async def test_sampled_calls_get_seeds_of_their_own_that_can_be_repeated():
    async def seeds() -> list[int | None]:
        model = fake()
        session = Session(SAMPLE, {"base": model})
        for agent in ("x", "x", "y"):
            await session.ask(PROMPT, QUESTION, Params(temperature=0.7), agent=agent)
        return [params.seed for _, params in model.requests]

    first = await seeds()

    assert first == await seeds()
    assert len(set(first)) == 3
    assert all(seed is not None and 0 <= seed < 2**31 for seed in first)


@pytest.mark.parametrize(("params", "seed"), [(Params(temperature=0), None), (Params(seed=9), 9)])
async def test_greedy_calls_get_no_seed_and_given_seeds_are_kept(params: Params, seed: int | None):
    model = fake()

    await Session(SAMPLE, {"base": model}).ask(PROMPT, QUESTION, params, agent="x")

    assert model.requests[0][1].seed == seed


async def test_the_runs_temperature_fills_what_a_method_leaves_open():
    model = fake()
    session = Session(SAMPLE, {"base": model}, params=Params(temperature=0.3))

    await session.ask(PROMPT, QUESTION, Params(), agent="x")
    await session.ask(PROMPT, QUESTION, Params(temperature=0), agent="x")

    assert [params.temperature for _, params in model.requests] == [0.3, 0]


async def test_the_runs_limit_of_tokens_replaces_every_other_but_that_of_one_token():
    model = fake()
    session = Session(SAMPLE, {"base": model}, params=Params(max_tokens=50))

    for limit in (None, 8, 400, 1):
        await session.ask(PROMPT, QUESTION, Params(max_tokens=limit), agent="x")

    sent = [(params.max_tokens, params.max_tokens_exact) for _, params in model.requests]
    assert sent == [(50, True), (50, True), (50, True), (1, True)]


@pytest.mark.parametrize(
    ("limits", "sent"),
    [
        ({"judge": 9}, {"base": 50, "judge": 9, "solver": 50}),
        ({"base": 9}, {"base": 9, "judge": 50, "solver": 9}),
        ({"solver": 9}, {"base": 50, "judge": 50, "solver": 9}),
    ],
    ids=str,
)
async def test_roles_may_have_limits_of_their_own(limits: dict[str, int], sent: dict[str, int]):
    # The solver has no model of its own, so the base model's limit is its limit.
    session = Session(SAMPLE, {"base": fake(), "judge": fake()}, params=Params(max_tokens=50), max_tokens=limits)

    for role in sent:
        await session.ask(PROMPT, QUESTION, Params(max_tokens=8), agent="x", role=role)

    assert {turn.role: turn.params.max_tokens for turn in session.trace} == sent


async def test_a_named_slot_fixes_the_seed_whatever_was_asked_before():
    async def seed_of(*slots: str) -> int | None:
        session = Session(SAMPLE, {"base": fake()})
        for slot in slots:
            await session.ask(PROMPT, QUESTION, Params(temperature=1), agent="x", slot=slot)
        return session.trace[-1].params.seed

    assert await seed_of("second") == await seed_of("first", "second")
    assert await seed_of("second") != await seed_of("first")


async def test_calls_without_a_seed_do_not_change_those_of_later_calls():
    async def seed_of(*earlier: Params) -> int | None:
        session = Session(SAMPLE, {"base": fake()})
        for params in (*earlier, Params(temperature=1)):
            await session.ask(PROMPT, QUESTION, params, agent="x")
        return session.trace[-1].params.seed

    assert await seed_of(Params(temperature=0)) == await seed_of()
    assert await seed_of(Params(temperature=1)) != await seed_of()
