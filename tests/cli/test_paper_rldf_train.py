"""`evenhand papers rldf --train` and `--ablate`: from a tiny model and its debates to the tables and figures."""

import csv
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.types import Message, Params
from evenhand.data.debates import load_topics
from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from evenhand.papers.rldf.arms import stages_of

UNREAD = 4
"""The exit code where a run measured nothing: the random model's answers to BBQ cannot be read."""
ROOM = ("--set", "debate.max_tokens=16", "--set", "debate.held_out=3", "--set", "debate.rounds=2")
FAST = tuple(
    part
    for setting in ("train.device=cpu", "sft.steps=1", "reward.steps=1", "ppo.steps=1", "ppo.max_new_tokens=4")
    for part in ("--set", setting)
)


def reply(name: str, messages: Sequence[Message], params: Params) -> str:
    """A referee and judge who likes the first statement least, and a teacher whose every word is new.

    The blind one finds no fault with what is no debate.
    """
    if params.schema is not None and "topics" in params.schema["properties"]:
        names = [f"t{params.seed}x{place}" for place in range(20)]
        return json.dumps({"topics": [{"topic": each, "question": f"{each} {each}a {each}b?"} for each in names]})
    if params.schema is None:
        return f"This is what {len(messages[-1].content)} and {params.seed} make of it, I say."
    fields = params.schema["properties"]
    pleased = name == "mild" or (name == "blind" and ", by answer 1:" in messages[-1].content)
    scores = {"prejudice_a": 1 if pleased else 8, "bias": 40, "communication": 60, "soundness": 70}
    return json.dumps({key: scores.get(key, 1 if key.startswith("prejudice") else "…") for key in fields})


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> dict[str, FunctionModel]:
    """The models stub/NAME that were loaded, by name."""
    loaded: dict[str, FunctionModel] = {}

    class Stub(FunctionModel):
        features = frozenset({"seed", "schema"})

        def __init__(self, name: str, options: object) -> None:
            super().__init__(partial(reply, name), spec=f"stub/{name}", features=type(self).features)
            loaded[name] = self

    monkeypatch.setitem(PROVIDERS._things, "stub", Stub)
    return loaded


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def asked(model: str, *more: str, referee: str = "stub/referee") -> tuple[str, ...]:
    judged = ("--judge", "stub/judge", "--model", f"referee={referee}")
    return ("papers", "rldf", "--model", model, *judged, "--builtin", "--bias", "age", "--out", "p", *ROOM, *more)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
    pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")
    from support.toy_training import tiny_model

    config = Path(tiny_model(tmp_path / "tiny")) / "config.json"
    # Debates are longer than what it is made for; its positions are computed, so it takes any.
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 4096}))
    return "hf/tiny"


@pytest.mark.training
def test_debates_pairs_models_and_tables_are_made_and_kept(cli: Any, stubs: Any, tiny: str, tmp_path: Path):
    arguments = asked(tiny, "--train", "--teacher", "stub/teacher", "--limit", "1", "--set", "debate.topics=6", *FAST)

    result = cli(*arguments)

    assert result.code == UNREAD, result
    assert "So few pairs teach little: --generate" in " ".join(result.out.split())
    made = tmp_path / "p"
    assert {path.name for path in (made / "models").iterdir()} == {"sr", "ts", "rlaif"}
    assert {path.name for path in (made / "opinions").iterdir()} == {"base", "sft", "rldf_sr", "rldf_ts", "rlaif"}
    assert {row["note"] for row in rows_of(made / "table3.csv") if row["method"] == tiny} == {""}
    kept = json.loads((made / "held_out.json").read_text())["held_out"]
    trained = {json.loads(line)["topic"] for line in (made / "pairs/ts/pairs.train.jsonl").read_text().splitlines()}
    assert len([each for each in kept if each["bias"] == "age"]) == 3
    assert trained and not trained & {each["id"] for each in kept}

    weights = made / "models/sr/ppo/model.safetensors"
    before = weights.stat().st_mtime_ns
    assert cli(*arguments).code == 2
    again = cli(*arguments, "--resume")
    assert again.code == UNREAD, again
    assert weights.stat().st_mtime_ns == before

    other = cli(*arguments, "--resume", "--set", "pairs.margin=3")
    assert (other.code, "made with other options" in other.err) == (2, True)


@pytest.mark.training
def test_the_trainings_of_a_preset_have_the_settings_that_it_declares(cli: Any, stubs: Any, tiny: str, tmp_path: Path):
    small = ("--train-seeds", "1", "--limit", "1", "--set", "debate.topics=6", *FAST)

    result = cli(*asked(tiny, "--train", "--teacher", "stub/teacher", "--preset", "released", *small))

    assert result.code == UNREAD, result
    declared = stages_of("released")
    for stage in ("sft", "reward", "ppo"):
        trained = json.loads((tmp_path / f"p/models/ts-age-seed1/{stage}/training.json").read_text())["options"]
        # FAST has the first; the second is the model that is named, which is checked below.
        left = ("max_new_tokens", "from_base")
        wanted = {name: value for name, value in declared[stage].items() if name not in left}
        assert {name: trained[name] for name in wanted} == wanted, stage
        assert Path(trained["model"].removeprefix("hf/")).name == {"sft": "tiny", "reward": "tiny", "ppo": "sft"}[stage]


@pytest.mark.training
def test_what_gives_nothing_to_learn_from_is_left_out_and_told(cli: Any, stubs: Any, tiny: str, tmp_path: Path):
    small = ("--limit", "1", "--set", "debate.topics=4", *FAST)

    result = cli(*asked(tiny, "--train", *small, referee="stub/blind"))

    assert result.code == UNREAD, result
    assert "p/pairs/rlaif is left out, and what would be trained on it: There is no high-bias statement" in result.out
    assert {path.name for path in (tmp_path / "p/opinions").iterdir()} == {"base", "sft", "rldf_sr"}
    notes = {row["setting"]: row["note"] for row in rows_of(tmp_path / "p/table3.csv") if row["method"] == tiny}
    assert (notes["RLAIF"], notes["RLDF (S-R)"]) == ("not run", "")


CASES = {
    "no folder": (("papers", "rldf", "--model", "hf/x", "--train"), "say where they go with --out"),
    "a model that cannot be trained": (asked("stub/x", "--train"), "Only hf/ and local/ models can be trained"),
    "pairs as well": (asked("hf/x", "--train", "--pairs", "d"), "with --train or --ablate remove it"),
    "a stage that is none": (asked("hf/x", "--train", "--set", "dpo.lr=1"), "--set takes STAGE.OPTION=VALUE"),
    "an option that is none": (asked("hf/x", "--train", "--set", "ppo.speed=1"), "ppo has algorithm"),
    "a text for a number": (asked("hf/x", "--train", "--set", "pairs.per_topic=a"), "takes a value like 8, not 'a'"),
    "too many topics": (asked("hf/x", "--train", "--set", "debate.topics=5000"), "There are topics for 2 to"),
    "a preset alone, without a folder": (
        ("papers", "rldf", "--model", "hf/x", "--preset", "paper"),
        "say where they go with --out",
    ),
    "topics without a number": (asked("hf/x", "--train", "--generate"), "say how many with --set debate.topics=N"),
    "seeds that are none": (asked("hf/x", "--train", "--train-seeds", "1,b"), "whole numbers with commas"),
    "seeds of an ablation": (asked("hf/x", "--ablate", "rounds=1,3", "--train-seeds", "1"), "trains once on each type"),
    "a teacher without a school": (asked("hf/x", "--teacher", "stub/t"), "they go with --train or --ablate"),
    "a type that is none": (("papers", "rldf", "--model", "hf/x", "--bias", "agee"), "did you mean age"),
    "a parameter that is none": (asked("hf/x", "--ablate", "steps=1,2"), "--ablate takes roles, rounds"),
    "one value": (asked("hf/x", "--ablate", "rounds=3"), "two or more values"),
    "no number": (asked("hf/x", "--ablate", "rounds=1,many"), "two or more values"),
    "more topics than there are": (asked("hf/x", "--ablate", "topics=2,5000"), "There are topics for 2 to"),
}


@pytest.mark.parametrize(("arguments", "hint"), CASES.values(), ids=CASES.keys())
def test_one_sentence_and_exit_code_2(cli: Any, stubs: Any, tmp_path: Path, arguments: tuple[str, ...], hint: str):
    result = cli(*arguments)

    assert result.code == 2, result
    assert hint in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "p").exists()


def test_a_dry_run_says_what_would_be_called_and_trained(cli: Any, stubs: Any, tmp_path: Path):
    result = cli(*asked("hf/a/x", "--train", "--teacher", "stub/t", "--ablate", "rounds=1,2", "--dry-run"))

    assert result.code == 0, result
    assert "debates" in result.out
    assert "Then 5 trainings of hf/a/x" in result.out
    assert "p/models/rlaif: rlaif" in result.out
    assert "p/ablate/age/models/roles3-rounds1-topics" in result.out
    assert stubs == {}
    assert not (tmp_path / "p").exists()


def test_a_dry_run_prices_topics_and_counts_the_trainings_of_all_seeds_and_types(cli: Any, stubs: Any, tmp_path: Path):
    size = ("--set", "debate.topics=100", "--set", "pairs.limit=5000", "--bias", "age,beauty", "--per-type")

    result = cli(*asked("hf/a/x", "--train", "--generate", "--train-seeds", "1,2,3", *size, "--dry-run"))

    assert result.code == 0, result
    assert "Topics first: " in result.out
    # Two types, three seeds, self-reflection and RLAIF.
    assert "Then 12 trainings of hf/a/x" in result.out
    assert "at most 5,000 pairs" in result.out
    assert stubs == {}
    assert not (tmp_path / "p").exists()


def test_topics_are_written_for_each_type_before_the_debates(cli: Any, stubs: Any, tiny: str, tmp_path: Path):
    size = ("--set", "debate.topics=70", "--bias", "age,beauty", "--teacher", "stub/teacher")

    result = cli(*asked(tiny, "--train", "--generate", *size, referee="stub/mild"))

    assert (result.code, "None of the debates gives anything to learn from" in result.err) == (2, True), result
    for bias in ("age", "beauty"):
        assert len(load_topics(bias, tmp_path / "p/topics").topics) == 73
    held_out = json.loads((tmp_path / "p/held_out.json").read_text())["held_out"]
    assert {each["bias"] for each in held_out} == {"age", "beauty"}
    assert "p/debates/ts: 140 of 140 done" in result.out


@pytest.mark.training
def test_ablations_share_their_debates_and_ask_the_same_topics(cli: Any, stubs: Any, tiny: str, tmp_path: Path):
    result = cli(*asked(tiny, "--ablate", "rounds=1,2", "--ablate", "pairs=4,8", "--set", "debate.topics=8", *FAST))

    assert result.code == 0, result
    made = tmp_path / "p/ablate/age"
    centre, one = "roles3-rounds2-topics8", "roles3-rounds1-topics8"
    assert {path.name for path in (made / "debates").iterdir()} == {centre, one}
    assert {path.name for path in (made / "models").iterdir()} == {centre, one, f"{centre}-pairs4", f"{centre}-pairs8"}
    for count in (4, 8):
        assert (made / f"pairs/{centre}-{count}/pairs.train.jsonl").read_bytes().count(b"\n") == count
    rows = rows_of(tmp_path / "p/figure8.csv")
    assert {(row["data_set"], row["metric"]) for row in rows} == {
        ("Rounds", "1"), ("Rounds", "2"), ("Pairs", "4"), ("Pairs", "8"), ("Pairs", "all"),
    }  # fmt: skip
    # The tiny model writes nonsense: it has a length, but gets no rating.
    words = [row["n"] for row in rows if row["setting"].startswith("Words")]
    assert set(words) == {"3"}
    assert {row["n"] for row in rows if not row["setting"].startswith("Words")} == {"0"}
    settings = {"RLDF", "Default", "RLDF less Default", "Words of RLDF, % of Default"}
    assert {row["setting"] for row in rows} == settings
    html = (tmp_path / "p/index.html").read_text(encoding="utf-8")
    assert html.count('class="scatter"') == 2
    assert "Age: 5 rounds give the least bias" in html
    # The first round is the same whether there is a second or not, and is paid for once.
    cli("run", "export", f"p/ablate/age/debates/{centre}", "--usage", "-o", "usage.jsonl")
    usage = [json.loads(line) for line in Path("usage.jsonl").read_text().splitlines()]
    assert sum(each["cached_calls"] for each in usage) == 8 * (3 + 1)
