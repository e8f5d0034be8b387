"""`evenhand runs import`: another tool's answers as a run like any other."""

import csv
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from evenhand import import_run
from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.types import Sample
from evenhand.studies.results import StudyResult
from evenhand.studies.study import study

SAMPLES: list[Sample] = list(load_benchmark("bbq_builtin").samples(Selection(44)))


def one_sentence(text: str) -> bool:
    return text.startswith("evenhand: ") and text.count("\n") == 1 and text.rstrip().endswith(".")


def inspect_sample(sample: Sample, letter: str, **more: Any) -> dict[str, Any]:
    """A sample of a log, as Inspect 0.3 writes it."""
    return {
        "id": sample.id,
        "epoch": 1,
        "input": f"Context: {sample.context}\n\nQuestion: {sample.prompt}",
        "choices": list(sample.choices),
        "target": "ABC"[sample.target],  # type: ignore[index]
        "messages": [{"role": "user", "content": "…"}],
        "output": {"model": "openai/m", "completion": f"ANSWER: {letter}"},
        "scores": {"choice": {"value": "I", "answer": letter}},
        "metadata": {},
        "model_usage": {"openai/m": {"total_tokens": 10}},
        **more,
    }


def eval_file(path: Path, samples: list[dict[str, Any]], model: str = "openai/m") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"eval": {"task": "bbq", "model": model}, "status": "success"}))
        for each in samples:
            archive.writestr(f"samples/{each['id']}_epoch_1.json", json.dumps(each))
    return path


def lm_eval_row(sample: Sample, choice: int, number: int) -> dict[str, Any]:
    """A line of `--log_samples`, of a task that rewords the option of not knowing as the harness' own BBQ does."""
    people = [each for place, each in enumerate(sample.choices) if place != sample.metadata["unknown"]]
    options = [*people, "Unknown", "Can't be determined"]
    said = "Can't be determined" if choice == sample.metadata["unknown"] else sample.choices[choice]
    category, _, example = sample.id.rpartition("-")
    return {
        "doc_id": number,
        "doc": {
            "category": category,
            "example_id": int(example),
            "context": sample.context,
            "question": sample.prompt,
        },
        "target": "0",
        "arguments": {
            f"gen_args_{place}": {"arg_0": f"{sample.context}\n\nQ: {sample.prompt}\nA:", "arg_1": f" {each}"}
            for place, each in enumerate(options)
        },
        "resps": [[["-0.1" if each == said else "-2.0", "False"]] for each in options],
        "filtered_resps": [["-0.1" if each == said else "-2.0", "False"] for each in options],
        "filter": "none",
        "acc": 1.0,
        "amb_bias_score": [1.0, float("nan")],
    }


def compared(*folders: str | Path) -> StudyResult:
    return study([Path(folder) for folder in folders])


def values(folder: str | Path) -> dict[str, float | None]:
    (arm,) = compared(folder).arms
    return {f"{each.metric}, {each.group}": each.value for each in arm.estimates}


def counted(result: StudyResult, metric: str = "coverage") -> list[int]:
    """How many samples each arm has."""
    return [each.n for arm in result.arms for each in arm.estimates if (each.metric, each.group) == (metric, "all")]


def answered_by_ours(cli, tmp_path: Path) -> list[dict[str, Any]]:
    """A run of ours, and what it chose."""
    cli("run", "--model", "fake/B", "--limit", "44", "--out", "runs/ours")
    cli("run", "export", "runs/ours", "--out", "ours.jsonl")
    return [json.loads(line) for line in (tmp_path / "ours.jsonl").read_text().splitlines()]


def test_the_same_answers_from_inspect_and_lm_eval_give_the_scores_of_our_own_run(cli, tmp_path: Path):
    known = {sample.id: sample for sample in SAMPLES}
    rows = [(known[row["sample"]], int(row["grade_choice"])) for row in answered_by_ours(cli, tmp_path)]
    eval_file(tmp_path / "log.eval", [inspect_sample(sample, "ABC"[choice]) for sample, choice in rows])
    lines = [json.dumps(lm_eval_row(sample, choice, place)) for place, (sample, choice) in enumerate(rows)]
    (tmp_path / "samples.jsonl").write_text("\n".join(lines))

    first = cli("runs", "import", "log.eval", "--out", "runs/inspect")
    second = cli("runs", "import", "samples.jsonl", "--out", "runs/lm", "--model", "m")

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert "44 answers imported (44 graded)" in first.out
    ours = values("runs/ours")
    for folder in ("runs/inspect", "runs/lm"):
        assert values(folder) == ours
    paired = compared("runs/ours", "runs/inspect")
    assert {each.difference for each in paired.effects if each.metric == "accuracy_ambig"} == {0}
    assert counted(paired) == [44, 44]


def test_questions_are_found_by_their_text_and_options_in_another_order(cli, tmp_path: Path):
    rows = [
        {
            "prompt": f"Context: {each.context}\nQuestion: {each.prompt}",
            "choices": list(reversed(each.choices)),
            "answer": "A",
        }
        for each in SAMPLES
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))

    done = cli("runs", "import", "t.jsonl", "--benchmark", "bbq_builtin", "--out", "runs/text")

    assert done.code == 0, done.err
    cli("run", "export", "runs/text", "--out", "text.jsonl")
    found = [json.loads(line) for line in (tmp_path / "text.jsonl").read_text().splitlines()]
    assert {row["sample"]: row["grade_choice"] for row in found} == {each.id: 2 for each in SAMPLES}


def test_options_that_are_letters_are_those_of_the_question(cli, tmp_path: Path):
    row = lm_eval_row(SAMPLES[0], 0, 0)
    row["doc"] = {"id": SAMPLES[0].id, "context": SAMPLES[0].context, "question": SAMPLES[0].prompt}
    row["arguments"] = {f"gen_args_{place}": {"arg_0": "", "arg_1": f" {each}"} for place, each in enumerate("ABC")}
    row["filtered_resps"] = [[-1.0, False], [-2.0, False], [-0.1, False]]
    (tmp_path / "samples.jsonl").write_text(json.dumps(row))

    assert cli("runs", "import", "samples.jsonl", "--out", "runs/letters").code == 0
    cli("run", "export", "runs/letters", "--out", "letters.jsonl")
    (found,) = [json.loads(line) for line in (tmp_path / "letters.jsonl").read_text().splitlines()]
    assert (found["grade_choice"], found["answer"]) == (2, SAMPLES[0].choices[2])


def test_an_imported_run_says_so_and_works_with_the_other_commands(cli, tmp_path: Path):
    eval_file(tmp_path / "log.eval", [inspect_sample(each, "B") for each in SAMPLES])
    assert cli("runs", "import", "log.eval").code == 0

    page = cli("report", "runs/import-log", "--out", "page.html")
    text = (tmp_path / "page.html").read_text()
    assert page.code == 0, page.err
    assert "imported from log.eval (Inspect log, SHA-256" in text
    assert "no calls were recorded" in text
    assert "imported/openai/m" in json.dumps(json.loads(cli("runs", "--json").out))
    assert cli("gate", "runs/import-log", "--fail-if", "coverage < 50").code == 0
    packed = cli("evidence", "pack", "runs/import-log", "--no-pdf", "--out", "pack")
    assert packed.code == 0, packed.err
    verified = cli("evidence", "verify", "pack")
    assert verified.code == 0, verified.out
    assert "were imported from log.eval, so no command repeats them" in verified.out
    assert "To repeat it" not in verified.out
    again = cli("resume", "runs/import-log")
    assert again.code == 0, again.err


def test_texts_are_judged_and_annotated_like_any_others(cli, tmp_path: Path):
    rows = [
        {"provider": {"id": "openai:m"}, "promptIdx": 0, "testIdx": place, "prompt": {"raw": f"Say {place}"}}
        | {"response": {"output": text, "tokenUsage": {"total": 7}}}
        | {"testCase": {"assert": [{"type": "equals", "value": "five"}]}, "vars": {}}
        for place, text in enumerate(["five", "I'm sorry, but I can't help with that.", "six", None])
    ]
    rows[3]["error"] = "429"
    (tmp_path / "promptfoo.json").write_text(json.dumps({"evalId": "e", "results": {"version": 3, "results": rows}}))

    done = cli("runs", "import", "promptfoo.json", "--out", "runs/texts")

    assert done.code == 0, done.err
    assert "2 graded, 1 refused, 1 unscored" in done.out
    assert values("runs/texts")["accuracy, all"] == 50
    scored = cli("run", "rescore", "runs/texts", "--scorer", "builtin")
    assert scored.code == 0, scored.err
    sheets = cli("annotate", "export", "runs/texts", "--out", "sheets")
    assert sheets.code == 0, sheets.err


def otlp(*attributes: tuple[str, Any]) -> dict[str, Any]:
    listed = [{"key": name, "value": {"stringValue": value}} for name, value in attributes]
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "chat m", "attributes": listed}]}]}]}


def messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def test_traces_are_paired_by_what_was_asked(cli, tmp_path: Path):
    for model, texts in (("a", ("yes", "no")), ("b", ("no", "no"))):
        spans = [
            otlp(
                ("gen_ai.operation.name", "chat"),
                ("gen_ai.request.model", model),
                ("gen_ai.input.messages", messages("user", f"Question {place}?")),
                ("gen_ai.output.messages", messages("assistant", text)),
            )
            for place, text in enumerate(texts)
        ]
        spans.append(otlp(("http.method", "GET")))
        (tmp_path / f"{model}.jsonl").write_text("\n".join(map(json.dumps, spans)))
    line = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[0])
    span = line["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    flat = {each["key"]: each["value"]["stringValue"] for each in span["attributes"]}
    (tmp_path / "sdk.json").write_text(json.dumps([{"name": "chat m", "attributes": flat}]))

    assert cli("runs", "import", "a.jsonl", "b.jsonl", "--out", "runs/both").code == 0
    assert cli("runs", "import", "sdk.json", "--out", "runs/sdk").code == 0

    assert counted(compared("runs/both")) == [2, 2]
    assert counted(compared("runs/both", "runs/sdk")) == [1, 1, 1]


def test_a_table_without_ids_is_paired_by_its_questions(tmp_path: Path):
    rows = ["model,prompt,answer", *(f"{model},Who is late {n}?,I do not know." for n in "123" for model in ("a", "b"))]
    (tmp_path / "t.csv").write_text("\n".join(rows))

    done = import_run(tmp_path / "t.csv", out=tmp_path / "run")

    assert done.done == 6
    assert len(study([tmp_path / "run"]).arms) == 2


def test_a_table_needs_only_its_columns_named(cli, tmp_path: Path):
    with (tmp_path / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["q", "one", "two", "right", "reply", "who"])
        writer.writerows([["1 + 1?", "2", "3", "A", "B) 3", "m"], ["2 + 2?", "4", "5", "4", "4", "m"]])
    named = ["prompt=q", "choices=one,two", "target=right", "answer=reply", "model=who"]

    done = cli("runs", "import", "t.csv", *(part for each in named for part in ("--map", each)), "-o", "runs/t")

    assert done.code == 0, done.err
    assert values("runs/t")["accuracy, all"] == 50
    pandas = pytest.importorskip("pandas")
    pandas.read_csv(tmp_path / "t.csv", dtype=str).to_parquet(tmp_path / "t.parquet")
    columns = dict(each.split("=") for each in named)
    import_run(tmp_path / "t.parquet", out=tmp_path / "parquet", columns=columns)
    assert values(tmp_path / "parquet")["accuracy, all"] == 50


def test_ids_with_slashes_are_names_in_the_archive(cli, tmp_path: Path):
    eval_file(tmp_path / "log.eval", [inspect_sample(SAMPLES[0], "B", id="set/0001", input="Who?")])

    assert "1 answer imported (1 graded)" in cli("runs", "import", "log.eval").out


def test_repeated_questions_are_one_cluster(tmp_path: Path):
    rows = [{"id": "q", "prompt": "1?", "answer": "a"}, {"id": "q", "prompt": "1?", "answer": "b"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))

    import_run(tmp_path / "t.jsonl", out=tmp_path / "run")

    (arm,) = compared(tmp_path / "run").arms
    (coverage,) = [each for each in arm.estimates if each.metric == "coverage" and each.group == "all"]
    assert (coverage.n, coverage.clusters) == (2, 1)


BAD = {
    "none.eval": None,
    "cut.eval": b"PK\x03\x04 and no more",
    "empty.jsonl": b"",
    "half.json": b'{"results": {"results": [',
    "other.json": b'{"a": 1}',
    "deep.json": b"[" * 200_000,
    "rows.jsonl": b'{"doc": 3, "resps": [], "doc_id": 1}\n',
    "list.jsonl": b"[1]\n",
    "odd.json": b'{"eval": {}, "samples": [3]}',
    "wrong.csv": b"question,reply\nHi?,ok\n",
    "binary.parquet": b"\x00\x01",
    "image.png": b"\x89PNG",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_one_sentence_and_leaves_no_run(cli, tmp_path: Path, name: str):
    content = BAD[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)

    result = cli("runs", "import", name, "--out", "runs/bad")

    assert result.code == 2, result.err
    assert one_sentence(result.err), result.err
    assert not (tmp_path / "runs/bad").exists()


def test_a_folder_is_not_called_missing(cli, tmp_path: Path):
    (tmp_path / "answers").mkdir()

    assert "answers: This is a folder, not a file." in cli("runs", "import", "answers", "--out", "runs/bad").err


def test_wrong_columns_are_named(cli, tmp_path: Path):
    (tmp_path / "t.csv").write_text("question,reply\nHi?,ok\n")

    assert "there is no column 'text'" in cli("runs", "import", "t.csv", "--map", "answer=text").err
    assert "--map has no field 'reply'" in cli("runs", "import", "t.csv", "--map", "reply=reply").err
    assert "--map is FIELD=COLUMN" in cli("runs", "import", "t.csv", "--map", "answer").err


def test_an_archive_that_would_fill_the_memory_is_not_unpacked(cli, tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "bomb.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", "{}")
        with archive.open("samples/a_epoch_1.json", "w", force_zip64=True) as part:
            for _ in range(300):
                part.write(b" " * (1 << 20))

    result = cli("runs", "import", "bomb.eval")

    assert result.code == 2
    assert "unpacked, it has more than" in result.err


def test_questions_that_bbq_does_not_have_are_named(cli, tmp_path: Path):
    other = inspect_sample(SAMPLES[0], "A", id="Age-1", input="Something else?")
    eval_file(tmp_path / "log.eval", [inspect_sample(each, "A") for each in SAMPLES[:4]] + [other])

    result = cli("runs", "import", "log.eval")

    assert result.code == 2
    assert "1 question of the file, such as Age-1, cannot be found in bbq_builtin" in result.err
    assert cli("runs", "import", "log.eval", "--benchmark", "imported").code == 0


def test_without_its_data_bbq_is_asked_for_and_not_taken_for_something_else(cli, tmp_path: Path):
    row = lm_eval_row(SAMPLES[0], 0, 0)
    row["doc"] |= {"question": "Who was it, of all people?", "example_id": 31}
    (tmp_path / "samples.jsonl").write_text(json.dumps(row))

    result = cli("runs", "import", "samples.jsonl", "--data", "nowhere")

    assert result.code == 2
    assert one_sentence(result.err)
    assert "nowhere" in result.err


def test_models_with_other_questions_are_imported_apart(cli, tmp_path: Path):
    rows = [{"id": "1", "answer": "a", "model": "x"}, {"id": "2", "answer": "a", "model": "y"}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))

    result = cli("runs", "import", "t.jsonl")

    assert result.code == 2
    assert "x has no answer to 1 question that another model answered, such as 2; import them apart" in result.err


def test_the_model_of_an_imported_run_cannot_be_asked(cli):
    result = cli("run", "--model", "imported/m", "--limit", "2", "--out", "runs/x")

    assert result.code == 2
    assert "were imported, so it cannot be asked" in result.err


def table(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize(
    ("target", "answer", "right"),
    [
        ("No", "I do not know.", False),
        ("4", "It is 14, or 4.5.", False),
        ("4", "It is 4.", True),
        (" Straße", "In der STRASSE!", True),
        ("巴黎", "首都是巴黎市", True),
    ],
)
def test_a_text_is_right_if_it_says_the_target_not_a_word_around_it(
    tmp_path: Path, target: str, answer: str, right: bool
):
    table(tmp_path / "t.csv", [{"id": 1, "prompt": "Q?", "target": target, "answer": answer}])

    import_run(tmp_path / "t.csv", out=tmp_path / "r")

    assert values(tmp_path / "r")["accuracy, all"] == (100.0 if right else 0.0)


def test_a_target_that_is_no_choice_is_refused_and_not_left_out(cli, tmp_path: Path):
    rows = [{"prompt": f"{n}?", "choices": "a|b", "target": n, "answer": "a"} for n in ("a", "both")]
    table(tmp_path / "t.csv", rows)

    result = cli("runs", "import", "t.csv", "--out", "r")

    assert result.code == 2
    assert "t.csv, line 3: the target 'both' is none of the choices." in result.err
    assert not (tmp_path / "r").exists()


def test_no_number_is_no_answer(cli, tmp_path: Path):
    row = lm_eval_row(SAMPLES[0], 0, 0)
    for part in (row["resps"], row["filtered_resps"]):
        part[0] = [float("nan"), False]
    (tmp_path / "samples_bbq_x.jsonl").write_text(json.dumps(row) + "\n")
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"prompt": ["a", "b"], "answer": [1.0, float("nan")]}), tmp_path / "t.parquet")

    done = import_run(tmp_path / "samples_bbq_x.jsonl", out=tmp_path / "lm", benchmark="imported")

    assert done.statuses == {"unscored": 1}
    assert import_run(tmp_path / "t.parquet", out=tmp_path / "t").statuses == {"graded": 1, "unscored": 1}


def test_without_right_answers_the_reason_is_given(cli, tmp_path: Path):
    table(tmp_path / "t.csv", [{"prompt": "Q?", "choices": "a|b", "answer": "a"}])
    cli("runs", "import", "t.csv", "--out", "r")

    assert "the file names no right answer" in " ".join(cli("report", "r").out.split())


def test_an_import_goes_into_a_folder_of_its_own(cli, tmp_path: Path):
    table(tmp_path / "t.csv", [{"prompt": "Q?", "answer": "a"}])
    cli("runs", "import", "t.csv", "--out", "r")

    assert cli("runs", "import", "t.csv", "--out", "r").err == (
        "evenhand: r holds a run already; choose another --out.\n"
    )
