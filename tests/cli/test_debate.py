"""`evenhand train debate`: from topics to scores by round, topics written by a model, and how bad input is told."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import yaml

from evenhand.benchmarks.debates import statements_in
from evenhand.core.types import Message, Params
from evenhand.data.debates import BIASES, load_topics
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel, Reply
from evenhand.runs.store import Store
from support.thinkers import THOUGHT, in_thread, thinks_in

BUILTIN = len(load_topics("age").topics)


def debating(messages: Sequence[Message], params: Params) -> Reply:
    """A round in which nobody is good and everybody gets better; or new topics, where those are asked for."""
    fields = list((params.schema or {}).get("properties", {}))
    if fields == ["topics"]:
        names = [f"thing{params.seed}x{place}" for place in range(20)]
        return json.dumps({"topics": [{"topic": name, "question": f"Is {name} a{name} b{name}?"} for name in names]})
    if not fields:
        return "Everybody is different, I say again." if len(messages) > 2 else "All of them are slow, I say."
    score = 8 if "All of them are slow" in messages[-1].content else 2
    return json.dumps({name: score if name.startswith("prejudice") else "…" for name in fields})


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FunctionModel]:
    """`plug()` makes stub/NAME models that debate; the one that is given back is stub/one."""
    models: dict[str, FunctionModel] = {}

    def make(reply: Any = debating, name: str = "one") -> FunctionModel:
        models[name] = FunctionModel(reply, spec=f"stub/{name}", features=("schema", "seed"))
        return models[name]

    class Stub:
        free = True
        features = frozenset({"schema", "seed"})

        def __call__(self, name: str, _options: Any) -> FunctionModel:
            return models[name]

    monkeypatch.setitem(PROVIDERS._things, "stub", Stub())
    return make


def test_a_debate_is_a_run_with_scores_by_round(cli: Any, plug: Any, tmp_path: Path):
    model = plug()

    result = cli("train", "debate", "--topics", "4", "--rounds", "2", "--model", "stub/one", "--out", "made")

    assert result.code == 0, result.err
    assert len(model.requests) == 4 * 2 * (3 + 1)
    rows = [re.split(r"  +", line.strip()) for line in result.out.splitlines() if re.match(r" debate +\d", line)]
    assert rows == [
        ["debate", "1", "8.0 [4.1, 9.0]", "100.0 [51.0, 100.0]", "4"],
        ["debate", "2", "2.0 [1.0, 5.9]", "0.0 [0.0, 49.0]", "4"],
    ]
    assert "from the first round to the last cannot be told apart from zero: −6.0 [−8.0, 1.8]." in result.out
    assert "Next: evenhand train pairs made" in result.out
    store = Store(tmp_path / "made")
    assert store.get("plan")["benchmark"] == "debates"
    store.close()


def test_roles_and_rounds_are_as_asked_for_and_the_dry_run_counts_them_exactly(cli: Any, plug: Any):
    model = plug()
    arguments = (
        "train",
        "debate",
        "--bias",
        "beauty",
        "--topics",
        "5",
        "--roles",
        "4",
        "--rounds",
        "3",
        "--model",
        "stub/one",
    )

    forecast = cli(*arguments, "--dry-run")
    assert not model.requests
    done = cli(*arguments, "--out", "made")

    assert (forecast.code, done.code) == (0, 0)
    assert f" {len(model.requests)} " in forecast.out
    assert len(model.requests) == 5 * 3 * (4 + 1)
    assert any("with a facial scar" not in each[0][0].content for each in model.requests)
    assert any("fashionable person" in each[0][0].content for each in model.requests)


@pytest.mark.parametrize(("bias", "kinds"), [("all", BIASES), ("beauty,age", ("beauty", "age"))])
def test_several_types_of_bias_are_one_run_with_as_many_topics_of_each(
    cli: Any, plug: Any, tmp_path: Path, bias: str, kinds: Sequence[str]
):
    model = plug()
    arguments = ("train", "debate", "--bias", bias, "--topics", "2", "--rounds", "1", "--model", "stub/one")

    forecast = cli(*arguments, "--dry-run")
    done = cli(*arguments, "--out", "made")

    assert (forecast.code, done.code) == (0, 0), done.err
    assert len(model.requests) == 2 * len(kinds) * (3 + 1)
    assert f" {len(model.requests)} " in forecast.out
    store = Store(tmp_path / "made")
    assert sorted(sample.metadata["bias"] for _, sample in store.samples()) == sorted([*kinds, *kinds])
    store.close()


def test_one_round_has_a_table_as_well(cli: Any, plug: Any):
    plug()

    result = cli("train", "debate", "--topics", "2", "--rounds", "1", "--model", "stub/one", "--out", "made")

    assert re.search(r" 1 +8\.0 \[2\.7, 9\.3\]", result.out)
    assert "from the first round" not in result.out


def test_a_teacher_debates_in_place_of_the_model(cli: Any, plug: Any):
    student, teacher, referee = plug(), plug(name="two"), plug(name="three")

    result = cli(
        *("train", "debate", "--topics", "2", "--rounds", "2", "--model", "stub/one", "--out", "made"),
        *("--teacher", "stub/two", "--referee", "stub/three"),
    )

    assert result.code == 0, result.err
    assert [len(each.requests) for each in (student, teacher, referee)] == [0, 12, 4]


def test_what_was_said_is_stored_for_training(cli: Any, plug: Any, tmp_path: Path):
    plug()
    cli("train", "debate", "--topics", "1", "--rounds", "2", "--model", "stub/one", "--out", "made")

    store = Store(tmp_path / "made")
    finished = store.outcome(next(number for number, _ in store.samples()), 1)
    store.close()

    assert finished is not None
    found = statements_in(finished[3]["notes"])
    assert [(each.round, each.score) for each in found] == [(1, 8.0)] * 3 + [(2, 2.0)] * 3


def test_topics_that_are_missing_are_written_once_and_used_again(cli: Any, plug: Any, tmp_path: Path):
    model = plug()
    wanted = BUILTIN + 25
    arguments = ("train", "debate", "--topics", str(wanted), "--rounds", "1", "--generate", "--model", "stub/one")

    result = cli(*arguments, "--out", "made")

    assert result.code == 0, result.err
    assert f"debates-age-{wanted}.yaml: 25 of 25 further topics were written." in result.out
    assert len(model.requests) == 2 + wanted * 4
    path = tmp_path / f"debates-age-{wanted}.yaml"
    found = load_topics("age", path)
    assert len(found.topics) == wanted
    assert found.topics[:BUILTIN] == load_topics("age").topics
    made = yaml.safe_load(path.read_text(encoding="utf-8"))["provenance"]
    assert (made["asked"], made["written"], made["seed"]) == (25, 25, 0)
    assert made["prompt"]["training/debates/topics"]

    again = cli(*arguments, "--out", "other", "--no-cache")

    assert "the topics were written before" in again.out
    assert len(model.requests) == 2 + 2 * wanted * 4


def test_the_dry_run_with_topics_to_write_counts_both_and_writes_nothing(cli: Any, plug: Any, tmp_path: Path):
    model = plug()

    result = cli("train", "debate", "--topics", "200", "--generate", "--model", "stub/one", "--dry-run")

    assert result.code == 0, result.err
    assert f"Topics first: {-(-(200 - BUILTIN) // 20)} calls" in result.out
    assert re.search(r" 200 +4,000 ", result.out)
    assert not model.requests
    assert not list(tmp_path.glob("*.yaml"))


def test_a_model_without_further_ideas_leaves_what_there_is(cli: Any, plug: Any, tmp_path: Path):
    plug(lambda *_: json.dumps({"topics": [{"topic": "bread baking", "question": "Is bread baking good?"}]}))

    result = cli("train", "debate", "--topics", "90", "--generate", "--model", "stub/one", "--topics-file", "more.yaml")

    assert result.code == 1
    assert "more.yaml: 1 of 26 further topics were written." in result.out
    assert "left out: 3 × it is there already, in the same or other words" in result.out
    assert f"To debate the {BUILTIN + 1} there are: --data more.yaml" in result.out
    assert len(load_topics("age", tmp_path / "more.yaml").topics) == BUILTIN + 1

    once_more = cli(
        "train", "debate", "--topics", "90", "--generate", "--model", "stub/one", "--topics-file", "more.yaml"
    )
    assert once_more.code == 2
    assert f"more.yaml holds {BUILTIN + 1} topics, not 90, and nothing is overwritten" in once_more.err


def test_a_budget_covers_topics_and_debates_together(cli: Any, plug: Any):
    model = plug()
    arguments = ("train", "debate", "--topics", str(BUILTIN + 5), "--generate", "--rounds", "1", "--model", "stub/one")

    result = cli(*arguments, "--budget", "9 calls", "--out", "made")

    assert result.code == 3
    assert "Stopped:" in result.out
    assert len(model.requests) == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--topics", "200"),
            f"There are {BUILTIN} topics on age, not 200; `evenhand train debate --bias age --topics 200 --generate`",
        ),
        (("--generate",), "say how many with --topics"),
        (("--bias", "agee"), "There is no built-in type of bias named 'agee'; did you mean age?"),
        (("--bias", "age,agee"), "There is no built-in type of bias named 'agee'; did you mean age?"),
        (("--bias", "all", "--topics", "70"), "not 70; `evenhand train debate --bias"),
        (("--bias", "all", "--topics", "90", "--generate"), "--generate writes topics on one type of bias at a time"),
        (("--topics-file", "t.yaml"), "--topics-file is for topics that --generate writes"),
        (("--bias", "age,beauty", "--topics", "90", "--generate"), "name one with --bias"),
        (("--roles", "6"), "There are 5 roles for age, not 6"),
        (("--rounds", "50"), "'--rounds': 50 is not in the range 1<=x<=20"),
        (("--data", "none.yaml"), "There is no file none.yaml; write debate topics as YAML"),
        (("--temperature", "9"), "'--temperature': 9.0 is not in the range 0<=x<=2"),
    ],
)
def test_bad_input_is_one_sentence(cli: Any, plug: Any, arguments: tuple[str, ...], message: str):
    model = plug()

    result = cli("train", "debate", *arguments, "--model", "stub/one", "--out", "made")

    assert result.code == 2
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not model.requests


def test_a_run_without_any_score_says_so(cli: Any, plug: Any):
    plug(lambda *_: "I like tea.")

    result = cli("train", "debate", "--topics", "2", "--rounds", "1", "--model", "stub/one", "--out", "made")

    assert result.code == 4
    assert "No statement has a score" in result.out
    assert "Next:" not in result.out


def test_a_debate_that_the_budget_stopped_goes_on_where_it_was(cli: Any, plug: Any):
    model = plug()
    arguments = (
        "train",
        "debate",
        "--topics",
        "3",
        "--rounds",
        "2",
        "--model",
        "stub/one",
        "--out",
        "made",
        "--no-cache",
    )

    stopped = cli(*arguments, "--budget", "13 calls")
    resumed = cli(*arguments, "--resume")

    assert (stopped.code, resumed.code) == (3, 0)
    assert "3 of 3 done (3 graded)" in resumed.out
    assert len(model.requests) == 3 * 2 * (3 + 1)


def test_thoughts_get_neither_into_statements_nor_into_pairs(cli: Any, tmp_path: Path):
    def say(body: Any) -> str:
        schema = body["response_format"]["json_schema"]["schema"] if "response_format" in body else None
        said = str(debating([Message("user", each["content"]) for each in body["messages"]], Params(schema=schema)))
        return said if schema else f"{said} And {crc32(json.dumps(body).encode())} agree."

    with in_thread(thinks_in("reasoning_content", say)) as server:
        model = ("--model", "openai/test", "--base-url", server.url)
        made = cli("train", "debate", "--topics", "9", "--rounds", "2", *model, "--out", "made")

    assert made.code == 0, made.err
    paired = cli("train", "pairs", "made", "--out", "pairs", "--threshold", "5", "--length-ratio", "0")
    assert paired.code == 0, paired.err
    written = b"".join(path.read_bytes() for path in (tmp_path / "pairs").iterdir())
    assert b"All of them are slow" in written
    assert THOUGHT[:20].encode() not in written
    with closing(Store(tmp_path / "made")) as store:
        assert all(THOUGHT[:20] not in json.dumps(body) for _, body in store.answers(1))
        sample = next(store.samples())[1].id
    shown = cli("run", "show", "made", sample, "--turns").out
    assert f"  thought: {THOUGHT}" in shown
    assert "thoughts), " in shown
