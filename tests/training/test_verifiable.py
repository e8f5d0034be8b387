"""Training on questions with a known answer: the whole command, its stages, what the reward is, and what is refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.core.errors import DataError, PlanError, UsageError
from evenhand.core.progress import Count, ignore

torch: Any = pytest.importorskip("torch", reason="needs pip install 'evenhand[train]'")
pytest.importorskip("peft", reason="needs pip install 'evenhand[train]'")

from evenhand.core.types import Message, Params  # noqa: E402
from evenhand.models.base import ModelOptions  # noqa: E402 - they need torch
from evenhand.models.load import load_model  # noqa: E402 - they need torch
from evenhand.training import models  # noqa: E402
from evenhand.training.chat import Encoded  # noqa: E402
from evenhand.training.forgetting import probes  # noqa: E402
from evenhand.training.losses import answer_logprobs  # noqa: E402
from evenhand.training.options import SFTOptions, VerifiableOptions  # noqa: E402
from evenhand.training.questions import QuestionPlan, QuestionRow, make  # noqa: E402
from evenhand.training.questions.folder import draw, load_benchmarks  # noqa: E402
from evenhand.training.rollout import roll_out  # noqa: E402
from evenhand.training.sft import SFTTrainer  # noqa: E402
from evenhand.training.verifiable import (  # noqa: E402  # noqa: E402  # noqa: E402
    Grader,
    general,
    own_questions,
    prompt_of,
    summarized,
    train_verifiable,
)
from evenhand.training.verifiable.general import comparison_prompts  # noqa: E402
from support.shell import Shell  # noqa: E402
from support.tiny import make_byte_model, make_model  # noqa: E402
from support.toy_training import Interruption, interrupt_after, tensors_of  # noqa: E402

HERE = models.Machine("cpu", "float32")
SHORT = (
    "--rows",
    "24",
    "--general",
    "0.1",
    "--max-new-tokens",
    "4",
    "--device",
    "cpu",
    "--sft-steps",
    "1",
    "--general-tokens",
    "8",
    "--probes",
    "20",
)


@pytest.fixture(scope="session")
def spelling(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model that can spell everything."""
    folder = tmp_path_factory.mktemp("spelling")
    make_byte_model(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def _no_official_bbq(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Reading all of BBQ for the leak check takes seconds."""
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def questions() -> list[QuestionRow]:
    return draw(QuestionPlan(seed=1), "train", 16, load_benchmarks())[0]


@pytest.fixture
def rows(tmp_path: Path, questions: list[QuestionRow]) -> Callable[..., Path]:
    """Writes rows of one's own, held-out ones included."""

    def write(*chosen: QuestionRow) -> Path:
        folder = tmp_path / "rows"
        folder.mkdir()
        lines = b"".join(row.line() for row in chosen or questions)
        for split in ("train", "dev"):
            (folder / f"{split}.jsonl").write_bytes(lines)
        return folder

    return write


async def answer_of(spec: str) -> str:
    async with load_model(spec, ModelOptions(extra={"device": "cpu"})) as model:
        return (await model.generate([Message("user", "Who?")], Params(temperature=1, seed=1, max_tokens=8))).text


@pytest.mark.training
async def test_the_whole_command_in_small(shell: Shell, spelling: str):
    given = ("train", "verifiable", "--model", spelling, "--out", "fair", "--device", "cpu", "--smoke")
    given = (*given, "--rl-steps", "2")
    assert shell(*given) == 0, shell.err
    assert "Use it as hf/fair/rl" in shell.out
    losses = re.search(r"Loss on held-out answers: (\d+\.\d\d) before, (\d+\.\d\d) after 8 steps\.", shell.out)
    assert losses
    assert float(losses[2]) < float(losses[1])

    record = json.loads(Path("fair/training.json").read_text())  # noqa: ASYNC240 - a tiny file
    assert record["finished"]
    assert list(record["results"]) == ["before", "sft", "rl"]
    assert record["results"]["rl"]["all"]["n"] == 12
    assert "| all | 12 |" in Path("fair/README.md").read_text()  # noqa: ASYNC240
    assert "exact reward" in Path("fair/rl/README.md").read_text()  # noqa: ASYNC240
    assert isinstance(await answer_of("hf/fair/rl"), str)

    assert shell(*given) == 2
    assert "go on with --resume" in shell.err
    assert shell(*given, "--resume") == 0


def test_a_dry_run_says_how_long_it_takes_here_and_writes_nothing(
    shell: Shell, spelling: str, rows: Callable[..., Path]
):
    given = ("train", "verifiable", "--model", spelling, "--out", "fair", "--data", rows(), *SHORT)

    assert shell(*given, "--dry-run") == 0, shell.err

    assert "What it takes on this machine (cpu)" in shell.out
    assert re.search(r"steps of fine-tuning +│? *\d", shell.out)
    assert re.search(r"At most [\d.]+ (s|min)", shell.out)
    assert not Path("fair").exists()


def test_a_finished_stage_is_kept(shell: Shell, spelling: str, rows: Callable[..., Path]):
    given = ("train", "verifiable", "--model", spelling, "--out", "fair", "--data", rows(), *SHORT, "--rl-steps", "1")
    small = ("--set", "rl.batch=2", "--set", "rl.answers=2")
    assert shell(*given, *small) == 0, shell.err
    kept = [Path("fair/sft/adapter_model.safetensors"), Path("fair/general.jsonl")]
    before = [path.stat().st_mtime_ns for path in kept]
    shutil.rmtree("fair/rl")
    record = json.loads(Path("fair/training.json").read_text())
    Path("fair/training.json").write_text(json.dumps({**record, "finished": False}))

    assert shell(*given, *small, "--resume") == 0, shell.err

    assert [path.stat().st_mtime_ns for path in kept] == before
    assert Path("fair/rl/adapter_model.safetensors").is_file()
    assert json.loads(Path("fair/rl/training.json").read_text())["results"]["held_out_prompts"] == 16


def test_the_adapter_is_merged_on_request(shell: Shell, spelling: str, rows: Callable[..., Path]):
    given = (
        "train",
        "verifiable",
        "--model",
        spelling,
        "--out",
        "fair",
        "--data",
        rows(),
        *SHORT,
        "--merge",
    )

    assert shell(*given) == 0, shell.err

    assert "Use it as hf/fair/sft" in shell.out
    assert Path("fair/sft/model.safetensors").is_file()
    assert not Path("fair/sft", models.ADAPTER).exists()


@pytest.mark.training
def test_all_weights_can_be_trained(shell: Shell, spelling: str, rows: Callable[..., Path]):
    given = ("train", "verifiable", "--model", spelling, "--out", "fair", "--data", rows(), *SHORT, "--rl-steps", "1")

    assert shell(*given, "--lora", "0", "--set", "rl.batch=2") == 0, shell.err

    assert Path("fair/rl/model.safetensors").is_file()


@pytest.mark.training
@pytest.mark.parametrize(("stage", "steps"), [("sft", 1), ("rl", 0), ("rl", 1)])
def test_interrupted_and_resumed_is_the_same_bit_for_bit(
    spelling: str, rows: Callable[..., Path], tmp_path: Path, stage: str, steps: int
):
    data = rows()

    def options(name: str) -> VerifiableOptions:
        return VerifiableOptions(
            model=spelling,
            out=tmp_path / name,
            data=data,
            max_new_tokens=4,
            probes=2,
            shared={"device": "cpu"},
            sft={"steps": 2, "save_every": 1},
            rl={"steps": 2, "batch": 4, "answers": 2, "save_every": 1},
        )

    train_verifiable(options("whole"), announce=lambda _: ignore)
    with pytest.raises(Interruption):
        train_verifiable(options("parts"), announce=lambda name: interrupt_after(steps) if name == stage else ignore)
    train_verifiable(options("parts"), resume=True, announce=lambda _: ignore)

    whole, parts = (tensors_of(tmp_path / name / "rl") for name in ("whole", "parts"))
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_rl_goes_on_with_the_adapter_and_stays_close_to_it(spelling: str, rows: Callable[..., Path], tmp_path: Path):
    train_verifiable(
        VerifiableOptions(
            model=spelling, out=tmp_path / "out", data=rows(), max_new_tokens=4, probes=2,
            shared={"device": "cpu"}, sft={"steps": 2, "lr": 0.1},
        ),
        announce=lambda _: ignore,
    )  # fmt: skip
    adapted = models.load_adapted(str(tmp_path / "out" / "sft"), HERE)
    merged = models.load_causal(str(tmp_path / "out" / "sft"), HERE, trained=False)
    ids = torch.tensor([[5, 6, 7]])
    expected = merged(ids).logits
    assert torch.allclose(adapted(ids).logits, expected, atol=1e-4)

    with torch.no_grad():
        for weight in models.trainable(adapted).values():
            weight.add_(0.1)
    with models.as_reference(adapted, None) as reference:
        assert torch.allclose(reference(ids).logits, expected, atol=1e-4)
    assert not torch.allclose(adapted(ids).logits, expected, atol=1e-4)
    assert not [name for name in models.trainable(adapted) if "reference" in name]


def test_a_new_start_takes_nothing_from_a_finished_stage(spelling: str, rows: Callable[..., Path], tmp_path: Path):
    out = tmp_path / "out"
    (out / "sft").mkdir(parents=True)
    (out / "training.json").write_text('{"stage": "verifiable", "finished": false}')
    (out / "sft" / "training.json").write_text('{"stage": "verifiable-sft", "finished": true}')
    (out / general.FILE).write_text("{}")

    with pytest.raises(PlanError, match="go on with --resume"):
        train_verifiable(VerifiableOptions(model=spelling, out=out, data=rows()), announce=lambda _: ignore)

    assert (out / general.FILE).is_file()


@pytest.mark.training
def test_a_stop_by_the_limits_is_reported(shell: Shell, spelling: str, rows: Callable[..., Path]):
    given = ("train", "verifiable", "--model", spelling, "--out", "fair", "--data", rows(), *SHORT, "--rl-steps", "1")

    assert shell(*given, "--set", "rl.batch=2", "--set", "rl.answers=2", "--set", "rl.longest=0.01") == 0, shell.err

    assert "! rl was stopped at step 1, because" in shell.out
    assert "! No step of this training was kept" in shell.out


def test_rl_asks_the_rows_of_its_own_file(rows: Callable[..., Path], questions: list[QuestionRow]):
    folder = rows(*questions[:12])
    assert own_questions(folder, count=None, forms=()).rl == questions[:12]

    (folder / "rl.jsonl").write_bytes(b"".join(row.line() for row in questions[8:]))
    assert own_questions(folder, count=12, forms=()).rl == questions[8:]


def test_every_row_counts_the_same(spelling: str, tmp_path: Path):
    model = models.load_causal(spelling, HERE, trained=True)
    chat = models.load_chat(spelling, model)
    encoded = [Encoded((9, 8, 7), (5, 1)), Encoded((4,), tuple(range(20, 60)))]
    options = SFTOptions(model=spelling, data=tmp_path, out=tmp_path, batch=2, steps=1)
    expected = [-answer_logprobs(model, chat, [row], HERE).sum().item() / len(row.answer) for row in encoded]

    loss = SFTTrainer(options, model, chat, encoded, HERE, equal_rows=True).step(0)["loss"]

    assert loss == pytest.approx(sum(expected) / 2, rel=1e-5)


def test_general_answers_are_sampled_once_and_a_truncated_one_has_no_end(spelling: str, tmp_path: Path):
    model = models.load_causal(spelling, HERE, trained=False)
    chat = models.load_chat(spelling, model)
    settings: dict[str, Any] = {"count": 3, "seed": 0, "max_new_tokens": 5, "observe": ignore}
    path = tmp_path / "general.jsonl"

    first = general.own_answers(model, chat, HERE, path, **settings)
    again = general.own_answers(None, chat, HERE, path, **settings)

    assert again == first
    stored = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["ended"] for row in stored] == [row.answer[-1] in chat.eos_ids for row in first]


def test_an_answer_with_a_line_separator_is_one_answer(spelling: str, tmp_path: Path):
    chat = models.load_chat(spelling, models.load_causal(spelling, HERE, trained=False))
    path = tmp_path / "general.jsonl"
    row = {"prompt": "Hello?", "answer": "One.\u2028Two.\x85Three.", "ended": True}
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8")

    settings: dict[str, Any] = {"count": 1, "seed": 0, "max_new_tokens": 5, "observe": ignore}
    assert len(general.own_answers(None, chat, HERE, path, **settings)) == 1

    line = {"form": "short", "state": "told", "language": "en", "situation": "one", "reply": row["answer"]}
    path = tmp_path / "evaluation" / "before.jsonl"
    path.parent.mkdir()
    path.write_text(json.dumps(line | {"grade": "right_person"}, ensure_ascii=False) + "\n", encoding="utf-8")
    assert summarized(tmp_path, ["before"])["before"]["all"]["n"] == 1


def test_comparisons_are_different_and_repeatable():
    prompts = comparison_prompts(300, seed=1)

    assert len(set(prompts)) > 290
    assert prompts == comparison_prompts(300, seed=1)
    assert not any("{" in prompt[0].content for prompt in prompts)


def test_general_prompts_are_many_and_different():
    prompts = general.general_prompts()

    assert len(prompts) == len(set(prompts)) >= 200


def test_the_reward_is_exact():
    told = next(row for row in make(QuestionPlan(forms=("letter",)), "train") if row.state == "told")
    wrong = next(i for i in range(len(told.options)) if i not in (told.right, told.unknown))
    answers = [told.marks[told.right], told.marks[told.unknown or 0], told.marks[wrong], "It depends."]

    assert Grader([told]).score([prompt_of(told)] * 4, answers) == [1, 0, -1, -1]


def test_held_out_answers_can_be_read(
    shell: Shell, spelling: str, rows: Callable[..., Path], questions: list[QuestionRow]
):
    assert shell(
        "train", "verifiable", "--model", spelling, "--out", "fair", "--data", rows(), *SHORT
    ) == 0, shell.err  # fmt: skip

    lines = [json.loads(line) for line in Path("fair/evaluation/before.jsonl").read_text().splitlines()]
    assert [line["question"] for line in lines] == [row.question for row in questions]
    model = models.load_causal(spelling, HERE, trained=False)
    chat = models.load_chat(spelling, model)
    greedy = roll_out(model, chat, [prompt_of(questions[0])], HERE, max_new_tokens=4, temperature=0)
    assert lines[0]["reply"] == greedy.texts[0]


def test_one_class_is_refused(shell: Shell, spelling: str, rows: Callable[..., Path], questions: list[QuestionRow]):
    data = rows(*(row for row in questions if row.state == "told"))

    assert shell("train", "verifiable", "--model", spelling, "--out", "fair", "--data", data, *SHORT) == 2
    assert "training needs both kinds" in shell.err.splitlines()[-1]


def test_text_of_a_benchmark_is_refused(
    shell: Shell, spelling: str, rows: Callable[..., Path], questions: list[QuestionRow]
):
    from dataclasses import replace

    from evenhand.data.bbq import CATEGORIES, BuiltinRows

    item = next(iter(BuiltinRows().items(CATEGORIES[0])))
    data = rows(*questions, replace(questions[0], context=item.context))

    assert shell("train", "verifiable", "--model", spelling, "--out", "fair", "--data", data, *SHORT) == 2
    assert "a benchmark must not be trained on" in shell.err.splitlines()[-1]


def test_too_few_rows_of_both_kinds_are_refused(rows: Callable[..., Path], questions: list[QuestionRow]):
    told = [row for row in questions if row.state == "told"]
    data = rows(*told, *(row for row in questions if row.state != "told"))

    with pytest.raises(DataError, match="training needs both kinds"):
        own_questions(data, count=len(told), forms=())


def test_only_rows_of_the_chosen_languages_are_used(rows: Callable[..., Path], questions: list[QuestionRow]):
    data = rows()

    chosen = own_questions(data, count=99, forms=(), languages=("en",))

    assert chosen.train == [row for row in questions if row.language == "en"] != questions
    with pytest.raises(DataError, match=r"No row has the language 'nl'; there are .*en, es"):
        own_questions(data, count=99, forms=(), languages=("nl",))


def test_an_answer_that_its_own_grader_rejects_is_refused(rows: Callable[..., Path], questions: list[QuestionRow]):
    from dataclasses import replace

    letter = next(row for row in questions if row.form == "letter")
    data = rows(*questions, replace(letter, marks=("X", "Y", "Z")))

    with pytest.raises(DataError, match="is graded form broken; its form, options, marks"):
        own_questions(data, count=99, forms=())


def test_lost_answers_are_one_sentence(tmp_path: Path):
    with pytest.raises(DataError, match="These answers cannot be read"):
        summarized(tmp_path, ["before"])


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_missing_model_is_noticed_before_questions_are_made(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
):
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("the hub is away")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", unreachable)
    assert shell("train", "verifiable", "--model", "hf/nobody/nothing", "--out", "fair", *more) == 2
    assert (
        shell.err == "evenhand: There is no model nobody/nothing here, and the hub did not find it: the hub is away\n"
    )
    assert not Path("fair").exists()


def test_a_letter_that_is_no_token_is_refused(shell: Shell, tiny: str, rows: Callable[..., Path]):
    assert shell("train", "verifiable", "--model", tiny, "--out", "fair", "--data", rows(), *SHORT) == 2
    assert "in one token, which the form" in shell.err.splitlines()[-1]


def test_a_model_without_chat_template_is_refused(shell: Shell, tmp_path: Path, rows: Callable[..., Path]):
    make_model(tmp_path / "base", template=None)

    assert shell("train", "verifiable", "--model", tmp_path / "base", "--out", "fair", "--data", rows(), *SHORT) == 2
    assert "has no chat template" in shell.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--rows", "0"), "'--rows': 0 is not in the range x>0"),
        (("--general", "1"), "'--general': 1.0 is not in the range 0<=x<1"),
        (("--lora", "0", "--merge"), "nothing to merge"),
        (("--set", "ppo.lr=1"), "There is no stage ppo"),
        (("--set", "rl.algorithm=ppo"), "needs a critic"),
        (("--set", "rl.speed=9"), "should be STAGE.OPTION=VALUE"),
        (("--forms", "poem"), "There is no answer form named 'poem'"),
        (("--data", "absent"), "There is no such file"),
    ],
)
def test_bad_input_is_one_sentence(shell: Shell, spelling: str, arguments: tuple[str, ...], sentence: str):
    assert shell("train", "verifiable", "--model", spelling, "--out", "out", *arguments) == 2

    last = shell.err.splitlines()[-1]
    assert last.startswith("evenhand: ")
    assert sentence in last


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"general": 1}, "general must be a number from 0 to below 1, not 1"),
        ({"rows": 0}, "rows must be a whole number above 0, not 0"),
        ({"lora": 0, "merge": True}, "nothing to merge"),
    ],
)
def test_bad_options_are_one_sentence(given: dict[str, Any], sentence: str):
    with pytest.raises(UsageError, match=sentence):
        VerifiableOptions(model="local/builtin", out=Path("out"), **given)


def test_from_python(spelling: str, rows: Callable[..., Path], tmp_path: Path):
    stages = {"sft": {"steps": 1}}
    given: dict[str, Any] = {"model": spelling, "data": rows(), "out": tmp_path / "out", "stages": stages}

    records = evenhand.train("verifiable", **given, device="cpu", max_new_tokens=4, general=0)

    assert list(records) == ["sft"]
    assert records["sft"]["results"]["general_answers"] == 0
    with pytest.raises(UsageError, match="no option of verifiable named 'speed'"):
        evenhand.train("verifiable", **given, speed=9)


def test_no_room_for_prompts_is_one_sentence(shell: Shell, tiny: str, rows: Callable[..., Path]):
    given = ("train", "verifiable", "--model", tiny, "--out", "fair", "--data", rows(), "--device", "cpu")

    assert shell(*given, "--max-new-tokens", "64") == 2
    assert "takes 64 tokens in all" in shell.err.splitlines()[-1]


def test_a_new_start_forgets_answers_of_the_old_one(spelling: str, rows: Callable[..., Path], tmp_path: Path):
    def options(seed: int) -> VerifiableOptions:
        shared = {"device": "cpu"}
        return VerifiableOptions(
            model=spelling, out=tmp_path / "out", data=data, max_new_tokens=4, probes=2, seed=seed, shared=shared,
            sft={"steps": 1},
        )  # fmt: skip

    def interrupt(stage: str) -> Count:
        if stage == "sft":
            raise Interruption
        return ignore

    data = rows()
    with pytest.raises(Interruption):
        train_verifiable(options(0), announce=interrupt)
    old = (tmp_path / "out" / general.FILE).read_text()
    train_verifiable(options(1), announce=lambda _: ignore)

    assert (tmp_path / "out" / general.FILE).read_text() != old


def test_what_was_forgotten_ends_with_exit_code_5(shell: Shell, spelling: str, rows: Callable[..., Path]):
    given = ("train", "verifiable", "--model", spelling, "--out", "fair", "--data", rows(), *SHORT)
    assert shell(*given) == 0, shell.err
    assert "# What was forgotten".lower() in Path("fair/README.md").read_text().lower()

    path = Path("fair/evaluation/forgetting-before.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    right = dict(zip([each.request for each in probes(0, 20)], probes(0, 20), strict=True))
    for line in lines:
        if line["area"] == "given facts":
            names = re.findall(r"[A-Z][a-z]+", line["request"])
            line["reply"] = next(name for name in names if right[line["request"]].check(name))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert shell(*given, "--resume") == 5
    assert "has lost against the untrained model: given facts" in shell.out
    assert shell(*given, "--resume", "--allow-loss", "100") == 2  # other options than those of the folder
