"""Judges and their endpoints: each model at its own, a model that judges itself loaded once and told of."""

from contextlib import closing
from typing import Any

import orjson
import pytest

from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Outcome, Params, Price, Sample
from evenhand.methods.base import METHODS
from evenhand.models.base import PROVIDERS
from evenhand.models.budget import Limits
from evenhand.models.fake import FunctionModel
from evenhand.runs.dry import forecast
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.pools import ScorerPool
from evenhand.runs.runner import Runner
from evenhand.runs.scores import rescore
from evenhand.runs.store import Store
from evenhand.scorers.base import ATTRIBUTES
from evenhand.studies.study import study
from support.fixtures import Serve
from support.runs import Workshop
from support.server import Body, Reply, chat, raw

RATED = orjson.dumps(dict.fromkeys(ATTRIBUTES, 10)).decode()
TEXTS: dict[str, Any] = {"benchmark": "realtoxicity_builtin", "limit": 2, "benchmark_options": {"completions": 1}}
PROMPT = parse_prompt("test/rate", "# user\nHow was it?\n")
OWN = "is the audited model itself"


def answer(body: Body) -> Reply:
    return chat(RATED if "response_format" in body else "A kind text.")


async def judged_by(sample: Sample, session: Any) -> Outcome:
    """Asks the judge once, and answers as a method without options does."""
    await session.ask(PROMPT, PROMPT.render(), Params(temperature=0), agent="judge", role="judge")
    return await METHODS.get("default").run(sample, session)


async def test_every_role_and_every_scorer_is_reached_at_its_own_endpoint(
    workshop: Workshop, serve: Serve, monkeypatch: pytest.MonkeyPatch
):
    for name in ("JUDGE_KEY", "SCORER_KEY"):
        monkeypatch.setenv(name, f"sk-{name}")
    model, scorer = await serve(answer=answer), await serve(answer=answer)
    scorers = [f"judge:openai/s?base_url={scorer.url}&key=SCORER_KEY"]

    progress = await workshop.run(**TEXTS, models=[f"openai/m?base_url={model.url}"], scorers=scorers)

    assert progress.statuses["graded"] == 2
    assert {body["model"] for body in model.bodies} == {"m"}
    assert {body["model"] for body in scorer.bodies} == {"s"}
    assert {each.headers.get("Authorization") for each in scorer.requests} == {"Bearer sk-SCORER_KEY"}
    stored = Store(workshop.directory / "run").get("plan")
    assert stored["judges"][f"openai/s?base_url={scorer.url}&key=SCORER_KEY"]["base_url"] == scorer.url


async def test_a_rating_that_fails_is_part_of_what_a_run_has_spent(workshop: Workshop, serve: Serve):
    model, scorer = await serve(answer=answer), await serve(raw(b"{"))

    progress = await workshop.run(
        **TEXTS,
        models=[f"openai/m?base_url={model.url}"],
        scorers=[f"judge:openai/s?base_url={scorer.url}&retries=0"],
        settings={"budget": Limits(calls=1000)},
    )

    with closing(Store(workshop.directory / "run")) as store:
        assert store.scoring().calls == len(scorer.requests) > 0
        assert sum(store.usage().values(), store.scoring()) == progress.spent


async def test_flags_reach_the_judges_of_scorers_too(workshop: Workshop, serve: Serve):
    server = await serve(answer=answer)
    fields = {**TEXTS, "models": ["openai/m"], "scorers": ["judge:openai/s"]}
    plan = make_plan(fields, {"base_url": server.url})

    await Runner(plan, workshop.directory / "run", Settings()).run()

    assert {body["model"] for body in server.bodies} == {"m", "s"}


async def test_a_model_that_scores_itself_is_loaded_once_and_told(workshop: Workshop, monkeypatch: pytest.MonkeyPatch):
    loaded: list[str] = []

    def load(name: str, _options: Any) -> FunctionModel:
        loaded.append(name)
        return FunctionModel(
            lambda _messages, params: RATED if params.schema else "A kind text.",
            spec=f"counted/{name}",
            features=("schema", "seed"),
        )

    monkeypatch.setitem(PROVIDERS._things, "counted", load)

    await workshop.run(**TEXTS, models=["counted/one"], scorers=["judge:counted/one"])
    await workshop.run("other", **TEXTS, models=["counted/one"], scorers=["judge:counted/two"])

    assert loaded == ["one", "one", "two"]
    [warning] = [each for each in study([workshop.directory / "run"]).caveats if OWN in each]
    assert warning.startswith("The judge behind the scorer judge:counted/one is the audited model itself")
    assert not [each for each in study([workshop.directory / "other"]).caveats if OWN in each]
    await rescore(workshop.directory / "other", ["judge:counted/one"])
    assert [each for each in study([workshop.directory / "other"]).caveats if f"judge:counted/one {OWN}" in each]


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ({"base": "stub/one"}, True),
        ({"base": "stub/one", "judge": "stub/one"}, True),
        ({"base": "stub/one", "judge": "stub/two"}, False),
    ],
)
async def test_a_method_whose_judge_is_the_audited_model_is_told(
    workshop: Workshop, models: dict[str, str], told: bool
):
    for name in ("one", "two"):
        workshop.model(lambda _messages, _params: "A", name)
    workshop.method("judged", judged_by, roles=("base", "judge"))

    await workshop.run(models=[models], methods=["judged"])

    caveats = study([workshop.directory / "run"]).caveats
    assert any(f"The judge of judged {OWN}" in each for each in caveats) is told


async def test_a_judge_that_is_never_asked_is_not_told(workshop: Workshop):
    async def plain(sample: Sample, session: Any) -> Outcome:
        return await METHODS.get("default").run(sample, session)

    workshop.model(lambda _messages, _params: "A")
    workshop.method("unasked", plain, roles=("base", "judge"))

    await workshop.run(methods=["unasked"])

    assert not [each for each in study([workshop.directory / "run"]).caveats if OWN in each]


async def test_a_run_is_resumed_by_its_plan_alone(workshop: Workshop, serve: Serve, monkeypatch: pytest.MonkeyPatch):
    server = await serve(answer=answer)
    home = workshop.directory / "home" / "evenhand"
    home.mkdir(parents=True)
    (home / "config.toml").write_text(f'[providers.near]\nbase_url = "{server.url}"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home.parent))
    directory = workshop.directory / "run"
    plan = make_plan({**TEXTS, "models": ["near/m"], "scorers": ["judge:near/s"]})
    await Runner(plan, directory, Settings(budget=Limits(calls=2), concurrency=1)).run()
    (home / "config.toml").unlink()

    stored = make_plan(Store(directory).get("plan"))
    progress = await Runner(stored, directory, Settings(resume=True)).run()
    [rescored] = await rescore(directory, ["judge:near/s"])

    assert progress.done == 2 and progress.statuses["graded"] == 2
    assert rescored.scored == 0  # all of them have been scored
    assert {body["model"] for body in server.bodies} == {"m", "s"}


async def test_each_judge_is_priced_by_itself():
    fields = {**TEXTS, "models": ["openai/m?price=1/1"], "scorers": ["judge:openai/s?price=10/10"]}

    free = await forecast(make_plan({**fields, "scorers": ["judge:fake/A"]}), {})
    paid = await forecast(make_plan(fields), {})
    flagged = await forecast(make_plan(fields), {"openai/s": Price(20, 20)})
    unknown = await forecast(make_plan({**fields, "scorers": ["judge:openai/s"]}), {})

    assert [each.label for each in paid] == ["default", "scoring"]
    assert free[1].usage.cost == 0
    assert flagged[1].usage.cost == pytest.approx(2 * (paid[1].usage.cost or 0))
    assert unknown[1].usage.cost is None


def test_keys_and_prices_do_not_decide_whose_run_it_is():
    plain = make_plan({"models": ["openai/m?base_url=http://a/v1"]})
    other = make_plan({"models": ["openai/m?base_url=http://a/v1&key=K&price=1/2&timeout=5&concurrency=3"]})
    elsewhere = make_plan({"models": ["openai/m?base_url=http://b/v1"]})

    assert plain.essence() == other.essence()
    assert plain.essence() != elsewhere.essence()
    assert plain.essence()["models"] == [{"base": {"spec": "openai/m", "base_url": "http://a/v1", "extra": {}}}]
    assert "judges" not in make_plan({"models": ["fake/A"], "scorers": ["judge:fake/B"]}).essence()


def test_one_model_at_two_endpoints_makes_two_arms():
    models = ["openai/m?base_url=http://a/v1", "openai/m?base_url=http://b/v1"]

    assert [arm.label for arm in make_plan({"models": models}).arms()] == [
        "openai/m at http://a/v1",
        "openai/m at http://b/v1",
    ]


def test_a_plan_file_may_give_a_model_as_a_map_of_fields():
    fields = {"spec": "openai/m", "base_url": ["http://b/v1", "http://a/v1"], "key": "K", "price": "1/2"}

    model = make_plan({"models": [{"base": "fake/A", "judge": fields}]}).models[0]["judge"]

    assert (model.base_url, model.key, model.price) == ("http://a/v1,http://b/v1", "K", Price(1, 2))


@pytest.mark.parametrize(
    ("methods", "rated_by"),
    [
        (["default"], "fake/J"),
        (["default", "stardtox:performance=false"], "fake/J"),
        (["default", "stardtox"], "fake/M"),
    ],
)
def test_texts_are_rated_by_another_judge_than_the_one_that_steers(methods: list[str], rated_by: str):
    plan = make_plan({**TEXTS, "methods": methods, "models": [{"base": "fake/M", "judge": "fake/J"}]})

    pool = ScorerPool(plan, {}, lambda model: FunctionModel(lambda _messages, _params: RATED, spec=model.spec))
    pool.get("quality")

    assert pool.judges["quality"].spec == rated_by
    assert not any("steers" in each for each in pool.caveats())


@pytest.mark.parametrize(
    ("models", "scorer"), [({"base": "fake/M"}, "quality"), ({"base": "fake/M", "judge": "fake/J"}, "quality:fake/J")]
)
def test_where_the_judge_that_steers_also_rates_it_is_told(models: Any, scorer: str):
    plan = make_plan({**TEXTS, "methods": ["stardtox"], "models": [models]})

    pool = ScorerPool(plan, {}, lambda model: FunctionModel(lambda _messages, _params: RATED, spec=model.spec))
    pool.get(scorer)

    assert any("also steers stardtox; name another, as in --scorer quality:SPEC" in each for each in pool.caveats())
