"""What RLDF's page is made of: the published numbers and what they say about each other, runs, claims, ablations."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import pytest

from evenhand.core.errors import UsageError
from evenhand.core.types import Record
from evenhand.data import bbq
from evenhand.data.debates import BIASES, load_topics
from evenhand.papers.base import Grid, PaperPage, PaperRow, PaperTable, published
from evenhand.papers.page import paper_page
from evenhand.papers.rldf import RLDF, stopped_arms, training_warnings
from evenhand.papers.rldf.arms import (
    ACCURACY,
    Arms,
    Contrast,
    RLDFOptions,
    Training,
    arm_name,
    own_arm,
    read_values,
    widened,
)
from evenhand.papers.rldf.steps import (
    BEST,
    AblationPoint,
    Making,
    ablation,
    debates_run,
    lessons,
    points,
    series,
    trained_arms,
    write_part,
)
from evenhand.papers.rldf.tables import (
    CATEGORIES,
    ahead,
    claims_of,
    compared,
    mostly_kept,
    people_tables,
    table_four,
    table_one,
    table_seven,
    table_six,
)
from evenhand.runs.execute import SeriesRun
from evenhand.runs.plan import make_plan
from evenhand.studies.results import Estimate
from evenhand.studies.tally import Tally
from support.papers import methods_of, options_of, specs_of

MODELS = ["Qwen1.5-7B", "Llama2-7B", "ChatGLM3-6B", "Baichuan2-7B"]
METHODS = ["Default", "CoT", "SFT", "FairThinking", "RLAIF", "RLDF"]
# Rows of the paper as printed, one or two of each table.
PRINTED = {
    ("table1", "Qwen1.5-7B, Default"): "35.8 42.5 44.3 51.1 47.2 52.9 44.2",
    ("table1", "Baichuan2-7B, RLDF"): "61.6 64.1 62.5 62.9 63.3 72.4 62.9",
    ("table2", "Llama2-7B, T-S, CE"): "75.70 74.50 78.20 77.50 78.40",
    ("table2", "Baichuan2-7B, S-R, LS"): "62.80 61.30 63.90 53.20 54.70",
    ("table3", "Qwen1.5-7B, CoT"): "69.28 63.28 70.15 58.20 62.11",
    ("table3", "Qwen1.5-7B, RLAIF"): "67.65 62.07 68.95 56.01 59.67",
    ("table3", "ChatGLM3-6B, RLDF"): "57.49 56.49 57.38 51.38 56.49",
    ("table4", "Qwen1.5-7B, S-R, BS"): "62.39 64.08 63.19 56.15 63.06",
    ("table4", "Baichuan2-7B, T-S, LS"): "66.32 65.97 64.03 56.63 58.48",
    ("table5", "Llama2-7B, Mistral-7B"): "60.43 55.31 60.51 48.37 55.46",
    ("figure5", "ChatGLM3-6B, RLAIF"): "73.62 71.42 75.98 74.82 76.24",
    ("figure6", "Baichuan2-7B, SFT"): "63.31 61.91 63.37 56.62 62.33",
}
# Table 12, which is the appendix's Table 3: the BS of two methods that Table 11 has as LS.
TABLE_TWELVE = {
    "Qwen1.5-7B, FairThinking": "57.84 55.33 60.02 47.01 51.06",
    "Qwen1.5-7B, SFT": "60.51 57.61 62.82 49.92 53.73",
    "Llama2-7B, FairThinking": "59.47 53.71 59.84 47.22 54.58",
    "Llama2-7B, SFT": "62.22 56.52 62.72 50.31 57.47",
    "ChatGLM3-6B, FairThinking": "58.55 57.54 58.47 52.41 57.57",
    "ChatGLM3-6B, SFT": "61.52 60.33 61.52 55.58 60.47",
    "Baichuan2-7B, FairThinking": "60.44 59.48 60.34 54.32 59.45",
    "Baichuan2-7B, SFT": "63.31 61.91 63.37 56.62 62.33",
}


def numbers(table: str, row: str) -> list[float]:
    return list(published("rldf").tables[table][row].values())


def same(first: list[float], second: list[float]) -> int:
    """How many cells are the same."""
    return sum(a == b for a, b in zip(first, second, strict=True))


# --- the published numbers ---


@pytest.mark.parametrize(("place", "expected"), PRINTED.items())
def test_rows_are_those_of_the_paper(place: tuple[str, str], expected: str):
    assert numbers(*place) == pytest.approx([float(each) for each in expected.split()])


def test_every_table_has_all_models_methods_and_types():
    tables = published("rldf").tables
    methods = {f"{model}, {method}" for model in MODELS for method in METHODS}

    assert set(tables["table1"]) == set(tables["table3"]) == set(tables["figure6"]) == methods
    assert all(list(row) == list(BIASES) for name in ("table3", "table5", "figure6") for row in tables[name].values())
    assert all(list(row) == [*CATEGORIES, "all"] for row in tables["table1"].values())
    assert set(tables["table12"]) == methods
    assert all(list(row) == list(BIASES) for row in tables["table12"].values())
    assert len(tables["table2"]) == len(tables["table4"]) == 24
    assert len(tables["table5"]) == len(tables["figure5"]) == 16


def test_overall_is_below_the_mean_of_the_categories_in_every_row():
    gaps = [fmean(list(row.values())[:-1]) - row["all"] for row in published("rldf").tables["table1"].values()]

    assert (round(min(gaps), 1), round(max(gaps), 1)) == (1.2, 2.9)


def test_the_gains_of_the_text_are_in_no_row_of_table_one():
    overall = {name: row["all"] for name, row in published("rldf").tables["table1"].items()}
    gains = {
        method: [round(overall[f"{model}, RLDF"] - overall[f"{model}, {method}"], 1) for model in MODELS]
        for method in METHODS[:-1]
    }

    assert gains["Default"] == [19.2, 22.2, 21.6, 20.5]
    assert gains["RLAIF"] == [3.3, 3.3, 3.7, 4.8]
    assert (min(gains["SFT"]), max(gains["SFT"])) == (0.5, 2.1)
    assert [12, 9, 6, 8] not in [[round(each) for each in row] for row in gains.values()]


def test_self_reflection_repeats_the_rows_of_other_methods():
    sources = {"Qwen1.5-7B": ("Default", 3), "Llama2-7B": ("Default", 2), "ChatGLM3-6B": ("CoT", 5),
               "Baichuan2-7B": ("RLAIF", 5)}  # fmt: skip
    for model, (method, count) in sources.items():
        assert same(numbers("table4", f"{model}, S-R, BS"), numbers("table3", f"{model}, {method}")) == count
        assert f"{model}, S-R, BS" in published("rldf").reproducible["table4"]


def test_rows_of_table_two_repeat_each_other():
    assert same(numbers("table2", "Llama2-7B, T-S, CE"), numbers("table2", "ChatGLM3-6B, T-S, CE")) == 4
    assert same(numbers("table2", "Baichuan2-7B, S-R, CE"), numbers("table2", "Baichuan2-7B, S-R, LS")) == 3


def test_teachers_of_table_five_contradict_tables_three_and_four():
    for model in MODELS:
        assert numbers("table4", f"{model}, T-S, BS") == numbers("table3", f"{model}, RLDF")
    assert same(numbers("table5", "ChatGLM3-6B, GPT-3.5"), numbers("table3", "ChatGLM3-6B, RLDF")) == 4
    assert numbers("table5", "ChatGLM3-6B, GPT-4")[2:] == numbers("table3", "ChatGLM3-6B, RLDF")[2:]
    assert same(numbers("table5", "Baichuan2-7B, GPT-3.5"), numbers("table3", "Baichuan2-7B, RLDF")) == 2


def test_soundness_repeats_bias():
    words = {"three of five": 3, "all five": 5}
    for name, row in TABLE_TWELVE.items():
        assert numbers("table12", name) == [float(each) for each in row.split()]
        count = same(numbers("figure6", name), [float(each) for each in row.split()])
        reason = published("rldf").reproducible["figure6"][name]
        assert [each for text, each in words.items() if text in reason] == [count]


def test_rlaif_is_worse_than_sft_in_table_three():
    worse = [
        a > b
        for model in MODELS
        for a, b in zip(numbers("table3", f"{model}, RLAIF"), numbers("table3", f"{model}, SFT"), strict=True)
    ]

    assert (sum(worse), len(worse)) == (18, 20)


# --- runs ---


def run_of(runs: list[SeriesRun], folder: str) -> SeriesRun:
    (found,) = [run for run in runs if run.folder == folder]
    return found


def test_the_model_has_three_methods_and_a_trained_one_has_one():
    runs = RLDF().runs(options_of(RLDF, "hf/m", limit=2, judge="openai/j", trained={"sft": "hf/s"}, pairs="pairs/age"))

    base, sft = run_of(runs, "opinions/base"), run_of(runs, "opinions/sft")
    assert methods_of(base.plan) == [("default", {}), ("cot", {}), ("fairthinking", {})]
    assert (specs_of(base.plan), base.plan.limit) == ({"base": "hf/m"}, 10)
    assert (methods_of(sft.plan), specs_of(sft.plan)) == ([("default", {})], {"base": "hf/s"})
    assert base.plan.scorers == sft.plan.scorers == ["opinion:openai/j"]
    assert sft.plan.benchmark_options == {"data": "pairs/age"}
    assert run_of(runs, "bbq/sft").plan.limit == 12


def test_without_a_judge_the_model_rates_all_arms():
    runs = RLDF().runs(options_of(RLDF, "hf/m", trained={"sft": "hf/s"}, bias=("age",)))

    assert run_of(runs, "opinions/sft").plan.scorers == ["opinion:hf/m"]
    assert run_of(runs, "opinions/sft").plan.benchmark_options == {"bias": "age"}


def test_a_trained_model_is_reached_like_the_model_it_came_from():
    models = make_plan({"models": [{"spec": "hf/m", "timeout": 9, "extra": {"device": "cpu"}}]}).models

    [_, _, choices, opinions] = RLDF().runs(RLDFOptions(models=tuple(models), trained={"sft": "hf/s"}))

    for run in (choices, opinions):
        model = run.plan.models[0]["base"]
        assert (model.spec, model.timeout, model.extra) == ("hf/s", 9, {"device": "cpu"})


def test_arms_are_named_as_users_name_them():
    assert [arm_name(name) for name in ("sft", "rldf_ts", "rldf:GPT-4")] == ["sft", "rldf_ts", "rldf@GPT-4"]
    with pytest.raises(UsageError, match="not 'sft:x'"):
        arm_name("sft:x")


def test_the_papers_method_is_that_with_a_teacher_where_there_is_one():
    assert own_arm({"rldf_sr", "rldf_ts"}) == "rldf_ts"
    assert own_arm({"rldf_sr", "rldf_ts", "rldf"}) == "rldf"
    assert own_arm({"default"}) == "rldf"


# --- training ---


def test_held_out_topics_are_those_that_no_debate_is_about():
    making = Making(options_of(RLDF, "hf/m", bias=("age", "beauty"), seed=3), stages={"debate": {"held_out": 5}})

    kept: list[dict[str, Any]] = json.loads(making.held_out_topics())["held_out"]
    assert {bias: sum(each["bias"] == bias for each in kept) for bias in BIASES} == dict.fromkeys(BIASES, 5)
    assert making.topics == min(len(load_topics(bias).topics) for bias in ("age", "beauty")) - 5


def test_lessons_are_the_modes_and_rlaif_with_the_teacher_as_its_referee():
    found = lessons(Making(options_of(RLDF, "hf/m"), ["openai/t", "hf/some/other"]))

    assert {training.name: specs_of(each.debates.plan) for training, each in found.items()} == {
        "rldf_sr": {"base": "hf/m"},
        "rldf_ts": {"base": "hf/m", "teacher": "openai/t"},
        "rldf@other": {"base": "hf/m", "teacher": "hf/some/other"},
        "rlaif": {"base": "hf/m", "referee": "openai/t"},
    }
    assert trained_arms(found, Path("p"))["sft"] == "hf/p/models/ts/sft"
    assert {training.name for training in lessons(Making(options_of(RLDF, "hf/m")))} == {"rldf_sr", "rlaif"}


def test_teachers_of_one_name_are_refused():
    with pytest.raises(UsageError, match="same name"):
        Making(options_of(RLDF, "hf/m"), ["openai/t", "hf/a/x", "hf/b/x"])


def test_each_seed_and_type_is_a_training_of_its_own():
    making = Making(options_of(RLDF, "hf/m", bias=("age", "beauty")), seeds=(1, 2), per_type=True)

    found = {training.name: each for training, each in lessons(making).items()}

    assert len(found) == 2 * 2 * 2
    one, two = found["rldf_sr-age-seed1"], found["rldf_sr-age-seed2"]
    assert one.debates == two.debates
    assert one.debates.plan.benchmark_options["bias"] == "age"
    assert (one.pairs, one.models, one.seed) == ("pairs/sr-age", "models/sr-age-seed1", 1)
    assert trained_arms(lessons(making), Path("p"))["sft-beauty-seed2"] == "hf/p/models/sr-beauty-seed2/sft"


@pytest.mark.parametrize("name", ["rldf_sr", "rldf_sr-age", "sft-seed0", "rldf@gpt-4-age-seed12"])
def test_the_name_of_a_training_can_be_read(name: str):
    assert Training.named(name).name == name


def test_trainings_are_paired_by_type_and_seed():
    one = Training("sft", "age", 1)

    assert one.matches(Training("rldf", "age", 1)) and one.matches(Training("default"))
    assert not one.matches(Training("rldf", "age", 2)) and not one.matches(Training("rldf", "beauty", 1))


def test_a_model_of_one_type_is_asked_about_that_type():
    runs = RLDF().runs(options_of(RLDF, "hf/m", limit=2, trained={"rldf_sr-age-seed1": "hf/s"}))

    plan = run_of(runs, "opinions/rldf_sr-age-seed1").plan
    assert (plan.benchmark_options, plan.limit) == ({"bias": "age"}, 2)
    assert run_of(runs, "bbq/rldf_sr-age-seed1").plan.limit == 12


def test_a_debate_takes_its_own_options_only():
    stages = {"debate": {"rounds": 2, "answers": 6, "roles": 4, "topics": 9}}
    making = Making(options_of(RLDF, "hf/m", roles={"referee": "openai/r"}), stages=stages)

    debate, rlaif = debates_run(making, "a"), debates_run(making, "b", method="rlaif")
    assert methods_of(debate.plan) == [("debate", {"rounds": 2})]
    assert methods_of(rlaif.plan) == [("rlaif", {"answers": 6})]
    assert debate.plan.benchmark_options == {"bias": ",".join(BIASES), "topics": 9, "roles": 4}
    assert specs_of(debate.plan) == {"base": "hf/m", "referee": "openai/r"}


def test_a_part_of_the_pairs_is_in_every_larger_part(tmp_path: Path):
    whole = tmp_path / "whole"
    whole.mkdir()
    for name in ("pairs.train", "pairs.test", "sft.train", "sft.test"):
        (whole / f"{name}.jsonl").write_text("".join(f'{{"text": "{name} {i}"}}\n' for i in range(10)))
    (whole / "pairs.json").write_text(json.dumps({"counts": {"pairs_train": 10, "sft_train": 10}, "sha256": {}}))

    for count in (3, 6):
        write_part(whole, tmp_path / str(count), count, seed=0)

    few, more = (set((tmp_path / each / "pairs.train.jsonl").read_text().splitlines()) for each in ("3", "6"))
    assert (len(few), len(more)) == (3, 6)
    assert few < more
    about = json.loads((tmp_path / "6/pairs.json").read_text())
    assert about["counts"] == {"pairs_train": 6, "sft_train": 6}
    assert (tmp_path / "6/pairs.test.jsonl").read_bytes() == (whole / "pairs.test.jsonl").read_bytes()
    with pytest.raises(UsageError, match="has 10 training pairs, not 11"):
        write_part(whole, tmp_path / "11", 11, seed=0)


# --- ablations ---


def test_a_point_is_made_once_whichever_parameter_it_belongs_to():
    making = Making(options_of(RLDF, "hf/m"), stages={"debate": {"topics": 8}})
    values = read_values(["rounds=5,1,3", "roles=2,3", "pairs=10,20"])

    found = points(making, values)

    assert values["rounds"] == (1, 3, 5)
    assert [point.name for point in found] == [
        "roles3-rounds1-topics8", "roles3-rounds3-topics8", "roles3-rounds5-topics8", "roles2-rounds5-topics8",
        "roles3-rounds5-topics8-pairs10", "roles3-rounds5-topics8-pairs20",
    ]  # fmt: skip
    assert [AblationPoint.named(point.name) for point in found] == found
    assert AblationPoint.named("base") is None


def test_parts_of_the_pairs_share_their_debates():
    making = Making(options_of(RLDF, "hf/m", bias=("beauty",)), stages={"debate": {"topics": 8}})

    found = list(ablation(making, read_values(["pairs=10,20"]))["beauty"].values())

    assert found[0].debates == found[1].debates
    assert found[0].debates.plan.benchmark_options == {"bias": "beauty", "topics": 8, "roles": 3}
    assert found[0].data == "ablate/beauty/pairs/roles3-rounds5-topics8-10"


def test_points_are_grouped_by_what_varies():
    centre = AblationPoint(3, 5, 8)
    others = [
        AblationPoint(3, 1, 8),
        AblationPoint(3, 3, 8),
        AblationPoint(2, 5, 8),
        AblationPoint(3, 5, 8, 10),
        AblationPoint(3, 5, 8, 20),
    ]

    found = series([*others, centre])

    assert {name: [getattr(point, name) for point in each] for name, each in found.items()} == {
        "roles": [2, 3],
        "rounds": [1, 3, 5],
        "pairs": [10, 20, None],
    }
    assert set(BEST) == {"roles", "rounds", "topics", "pairs"}
    assert series([]) == {}


# --- tables and claims ---


def rows(table: PaperTable, grid: str) -> list[PaperRow]:
    (found,) = [each for each in table.grids if each.name == grid]
    return list(found.rows)


def test_tables_without_runs_hold_the_papers_numbers():
    none = Arms()

    first = rows(table_one(none, []), "Accuracy")
    assert [row.setting for row in first[:6]] == METHODS
    assert {row.note for row in first[:6]} == {"not run"}
    assert first[6].cells[0].published == pytest.approx(35.8)
    assert len(rows(compared(none, "table3", "BS"), "BS")) == 6 + 24
    assert [row.setting for row in rows(table_four(none), "CE")[:4]] == ["S-R", "T-S", "T-S less S-R", "S-R"]
    assert {row.note for row in rows(people_tables({})[0], "BS")[:2]} == {"not measured"}


def test_the_sizes_of_bbq_add_up_to_the_printed_total():
    sizes = {name: row["examples"] for name, row in published("rldf").tables["table6"].items()}

    assert sizes.pop("all") == 58_492 == sum(sizes.values())
    assert set(sizes) == set(bbq.CATEGORIES)


def test_table_six_has_what_was_asked_beside_what_there_is():
    tally = Tally([ACCURACY], "category")
    for number in range(3):
        tally.add(Record(f"q{number}", f"q{number}", "graded", {"category": "Age"}, {"correct": True}))
    tally.finish()

    found = {row.published_as: row for row in rows(table_six(Arms(alone={"default": tally})), "BBQ")}

    (printed, asked) = found["Age"].cells
    assert (printed.published, asked.estimate and asked.estimate.value) == (3_680, 3.0)
    assert (found["Religion"].ours, found["Religion"].cells[1].estimate) == (False, None)
    assert found["all"].cells[1].estimate == Estimate("asked", "all", 3.0, None, None, 3)


def test_table_seven_has_three_identities_of_the_paper_and_those_who_debate_here():
    found = {row.method: row for row in rows(table_seven(), "Types of bias")}

    assert list(found) == [bias.capitalize() for bias in BIASES]
    assert found["Age"].setting == "here 20-year-old, 40-year-old, 60-year-old; paper: young, middle, old"
    assert [cell.published for cell in found["Age"].cells] == [3, 2_000]


@pytest.mark.parametrize(("name", "short", "radars"), [("figure5", "CE", 4), ("figure6", "LS", 4), ("table3", "BS", 0)])
def test_figures_five_and_six_are_radars_of_five_spokes(name: str, short: str, radars: int):
    page = paper_page(PaperPage("Title", "Source", "", [compared(Arms(), name, short)], [], [])).html()

    assert page.count('class="radar"') == radars
    if radars:
        outline = re.search(r'<polygon points="([^"]+)" class="outline">', page)
        assert outline is not None and len(outline[1].split()) == 5
        # Each model has all methods that its table gives.
        assert page.count('class="outline"') == len(published("rldf").tables[name])


@pytest.mark.parametrize(("topics", "held_out"), [(None, 12), (20, 12), (300, 60), (500, 100), (2_000, 100)])
def test_many_written_topics_leave_a_hundred_questions_of_each_type(topics: int | None, held_out: int):
    written = None if topics is None else Path("topics")
    making = Making(options_of(RLDF, "hf/m"), stages={"debate": {"topics": topics}} if topics else {}, written=written)

    assert making.held_out == held_out


def difference(value: float, width: float, p_value: float) -> Contrast:
    return Contrast(Estimate("bias", "all", value, value - width, value + width, 60), p_value)


def verdict(found: Sequence[Contrast | None], better: Literal["lower", "higher"]) -> str:
    return ahead([("one less other", each) for each in found], better)[0]


def test_a_claim_holds_where_every_difference_is_found():
    sure, other, unsure = difference(-5, 2, 0.001), difference(5, 2, 0.001), difference(-1, 2, 0.4)

    assert verdict([sure, sure], "lower") == "holds"
    assert verdict([sure, sure], "higher") == "fails"
    assert verdict([sure, unsure], "lower") == "cannot be determined"
    assert verdict([sure, other], "lower") == "fails"
    assert verdict([sure, None], "lower") == "cannot be determined"
    assert ahead([], "lower") == ("cannot be determined", "not run")
    assert ahead([("RLDF less SFT", sure)], "lower")[1] == "RLDF less SFT: −5.0 [−7.0, −3.0], n = 60"


def test_what_is_found_is_corrected_for_how_much_was_looked_at():
    near = difference(-3, 2.9, 0.04)

    assert verdict([near], "lower") == "holds"
    assert verdict([near] * 5, "lower") == "cannot be determined"


def test_claims_without_runs_say_so():
    assert {(claim.verdict, claim.why) for claim in claims_of(Arms(), Arms())} == {("cannot be determined", "not run")}


def test_only_grids_that_are_to_be_drawn_are():
    table = PaperTable("t", "Table", "", [Grid("a", [], [])])
    page = PaperPage("Title", "Source", "", [table], [], [])

    assert 'class="scatter"' not in paper_page(page).html()


def test_the_page_says_which_trainings_were_stopped(tmp_path: Path):
    why = "stopped at step 4, because 42% of answers are truncated; the weights are those of step 0"
    for name, ended, kept in (("rlaif", "done", 12), ("sr-seed1", why, 0), ("ts", why.replace("p 0", "p 2"), 2)):
        folder = tmp_path / "models" / name / "ppo"
        folder.mkdir(parents=True)
        record = {"finished": True, "ended": ended, "results": {"kept_step": kept}}
        (folder / "training.json").write_text(json.dumps(record))

    of_its_own, of_step_two = training_warnings(tmp_path)

    assert of_its_own == f"models/sr-seed1/ppo: training {why}, so it is the fine-tuned model (SFT)."
    assert of_step_two.startswith("models/ts/ppo: training stopped at step 4")
    assert "SFT" not in of_step_two


@pytest.mark.parametrize("text", ["{broken", "[1]"])
def test_the_page_says_which_records_of_trainings_are_damaged(tmp_path: Path, text: str):
    folder = tmp_path / "models" / "sr" / "ppo"
    folder.mkdir(parents=True)
    (folder / "training.json").write_text(text)

    [warning] = training_warnings(tmp_path)

    assert warning.startswith("models/sr/ppo: training.json is damaged")


def test_the_page_says_which_reward_models_like_worthless_answers(tmp_path: Path):
    for name, wins in (("sr", 0.42), ("ts", 0.0)):
        folder = tmp_path / "models" / name / "reward"
        folder.mkdir(parents=True)
        kinds = {"gibberish": {"reward": 2.9 if wins else -4.0, "wins": wins}, "empty": {"reward": -7.0, "wins": 0.0}}
        record = {"ended": "done", "results": {"probe": {"good": 3.0, "biased": 0.1, "kinds": kinds}}}
        (folder / "training.json").write_text(json.dumps(record))

    [warning] = training_warnings(tmp_path)

    assert warning.endswith("models/sr/reward (gibberish 42 %).")


# --- trainings: their variance, and those that were stopped ---


def test_an_interval_of_trained_arms_has_how_much_trainings_differ():
    """Seeds of +0.6, +0.1 and −0.6 give ± 1.5, whatever the interval over questions is."""
    over_questions = Estimate("bias", "all", 0.03, -0.42, 0.48, 60)

    found = widened(over_questions, [0.6, 0.1, -0.6])

    assert found.low is not None and found.high is not None
    assert (round(0.03 - found.low, 1), round(found.high - 0.03, 1)) == (1.6, 1.6)
    assert widened(over_questions, [0.6]) == over_questions


def test_an_arm_whose_training_was_stopped_gives_no_verdict(tmp_path: Path):
    record = tmp_path / "models/ts-seed1/ppo/training.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"ended": "stopped: the answers became shorter"}', encoding="utf-8")

    halted = stopped_arms(tmp_path)
    assert halted == {"rldf_ts"}
    arms = Arms("m", alone={"rldf_ts": Tally([], "bias")}, stopped=halted)
    found = claims_of(arms, arms)
    assert {claim.verdict for claim in found} == {"cannot be determined"}
    assert all("failed or was stopped" in claim.why for claim in found)


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ([(-1.0, 1.0), (-1.5, 0.0), (-9.0, -3.0)], "holds"),
        ([(-9.0, -3.0), (-9.0, -2.5), (-1.0, 1.0)], "fails"),
        ([(-1.0, 1.0), (-9.0, -3.0)], "cannot be determined"),
        ([(-9.0, 9.0)] * 3, "cannot be determined"),
        ([], "cannot be determined"),
    ],
)
def test_what_is_claimed_of_most_cases_needs_most_of_them(ends: list[tuple[float, float]], verdict: str):
    found = [("case", Contrast(Estimate("CE", "all", 0.0, low, high, 9), 0.5)) for low, high in ends]

    answer, why = mostly_kept(found)

    assert answer == verdict
    sure = sum(low > -2 for low, _ in ends)
    assert not ends or why.startswith(f"{sure} of {len(ends)} cases surely lose less than 2")
