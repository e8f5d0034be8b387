"""Whatever is wrong: one clear sentence, exit code 2, nothing half-written."""

import subprocess
import sys
from pathlib import Path

import pytest

RUN = ("run", "--limit", "4", "--out", "r")
TEXTS = ("--benchmark", "realtoxicity_builtin")

CASES = {
    "unknown command": (("adit",), "did you mean audit"),
    "unknown option": (("run", "--modell", "fake/A"), "--model"),
    "unknown provider": ((*RUN, "--model", "opnai/x"), "did you mean openai"),
    "not a spec": ((*RUN, "--model", "gpt"), "provider/name"),
    "no model": (RUN, "names no model"),
    "unknown method": ((*RUN, "--model", "fake/A", "--method", "coot"), "did you mean cot"),
    "unknown method option": ((*RUN, "--model", "fake/A", "--method", "cot:tokens=3"), "max_tokens"),
    "calls that weigh has not": (
        (*RUN, "--model", "fake/A", "--method", "weigh:calls=5"),
        "must be 3 or 6 or 12",
    ),
    "weights that nobody fitted": (
        (*RUN, "--model", "fake/A", "--method", "weigh:weights=fake/B"),
        "no weights 'fake/B'; fit them with `evenhand models calibrate MODEL`",
    ),
    "unknown benchmark": ((*RUN, "--model", "fake/A", "--benchmark", "bqb"), "did you mean bbq"),
    "unknown benchmark option": ((*RUN, "--model", "fake/A", "--set", "category=Age"), "categories"),
    "unknown category": ((*RUN, "--model", "fake/A", "--set", "categories=Aeg"), "did you mean Age"),
    "missing data": ((*RUN, "--model", "fake/A", "--benchmark", "bbq"), "evenhand data pull bbq"),
    "data folder that is not there": ((*RUN, "--model", "fake/A", "--benchmark", "bbq", "--data", "no"), "no"),
    "missing key": ((*RUN, "--model", "openai/gpt-4o-mini"), "OPENAI_API_KEY"),
    "bad base url": ((*RUN, "--model", "openai/x", "--base-url", "localhost:8000"), "http://localhost:8000/v1"),
    "role that nobody uses": ((*RUN, "--model", "fake/A", "--model", "judge=fake/B"), "judge"),
    "judge that nobody asks": ((*RUN, "--model", "fake/A", "--judge", "fake/B"), "judge"),
    "two judges": (
        (*RUN, "--model", "fake/A", "--model", "judge=fake/B", "--judge", "fake/C", "--method", "stardtox"),
        "judge",
    ),
    "only a judge": ((*RUN, "--judge", "fake/B"), "names no model"),
    "only a role": ((*RUN, "--model", "judge=fake/B"), "names no model"),
    "same arm twice": ((*RUN, "--model", "fake/A", "--method", "cot", "--method", "cot"), "twice"),
    "bad limit": (("run", "--model", "fake/A", "--limit", "0", "--out", "r"), "limit"),
    "bad token limit": ((*RUN, "--model", "fake/A", "--max-tokens", "many"), "--max-tokens takes N or ROLE=N"),
    "token limit of zero": ((*RUN, "--model", "fake/A", "--max-tokens", "judge=0"), "--max-tokens takes N or ROLE=N"),
    "two token limits": (
        (*RUN, "--model", "fake/A", "--max-tokens", "5", "--max-tokens", "6"),
        "--max-tokens is given twice for all roles",
    ),
    "token limit of a role that nobody has": (
        (*RUN, "--model", "fake/A", "--max-tokens", "judge=5"),
        "max_tokens names the role 'judge', which no method of this plan has",
    ),
    "token limit beside a method's own": (
        (*RUN, "--model", "fake/A", "--method", "cot:max_tokens=9", "--max-tokens", "5"),
        "max_tokens is set for the plan, and max_tokens for the method cot; remove one",
    ),
    "bad judge samples": ((*RUN, "--model", "fake/A", "--judge-samples", "0"), "--judge-samples"),
    "bad budget": ((*RUN, "--model", "fake/A", "--budget", "lots"), "'$5'"),
    "money without a price": (
        (*RUN, "--model", "openai/x", "--base-url", "http://127.0.0.1:9/v1", "--budget", "$1"),
        "--price",
    ),
    "bad price": ((*RUN, "--model", "fake/A", "--price", "fake/A=cheap"), "SPEC=INPUT/OUTPUT"),
    "missing plan file": (("run", "--config", "none.yaml"), "none.yaml"),
    "reading that the model lacks": ((*RUN, "--model", "fake/A", "--reading", "logprobs"), "logprobs"),
    "method for other samples": (
        (*RUN, "--model", "fake/A", "--method", "self_debias_gen"),
        "does not support the 'choice'",
    ),
    "method that needs logits": (
        (*RUN, "--model", "fake/A", "--method", "self_debias_gen", "--benchmark", "realtoxicity_builtin"),
        "The method self_debias_gen needs logits of its model, which fake/A does not give; use an hf/ model.",
    ),
    "method that needs logits, dry": (
        (*RUN, "--model", "fake/A", "--method", "self_debias_gen", "--benchmark", "realtoxicity_builtin", "--dry-run"),
        "use an hf/ model",
    ),
    "local model that is not there, dry": (
        ("audit", "local/nope", "--out", "r", "--dry-run"),
        "There is no local model named 'nope'; known: builtin",
    ),
    "judge that is not there, dry": (
        ("audit", "fake/A", *TEXTS, "--scorer", "judge:local/none.gguf", "--dry-run"),
        "There is no file none.gguf",
    ),
    "folder that is not there, dry": ((*RUN, "--model", "hf/nope", "--dry-run"), "There is no model folder"),
    "writer of scenarios that is not there, dry": (
        ("judges", "malibu", "generate", "--model", "local/nope", "--bases", "1", "--out", "r", "--dry-run"),
        "There is no local model named 'nope'",
    ),
    "writer of topics that is not there, dry": (
        ("train", "debate", "--bias", "beauty", "--topics", "200", "--generate", "--model", "local/nope", "--dry-run"),
        "There is no local model named 'nope'",
    ),
    "unknown evaluator": (
        (*RUN, "--model", "fake/A", "--method", "stardtox:evaluators=suport"),
        "did you mean support",
    ),
    "evaluator of other samples": (
        (*RUN, "--model", "fake/A", "--method", "stardtox:evaluators=performance"),
        "The evaluator performance does not support 'choice' samples.",
    ),
    "method option out of range": ((*RUN, "--model", "fake/A", "--method", "stardtox:support=500"), "from 0 to 100"),
    "unknown scorer": ((*RUN, "--model", "fake/A", *TEXTS, "--scorer", "bultin"), "did you mean builtin"),
    "unknown scorer of a method": (
        (*RUN, "--model", "fake/A", *TEXTS, "--method", "stardtox:scorer=bultin"),
        "did you mean builtin",
    ),
    "two scorers of one attribute": (
        (*RUN, "--model", "fake/A", *TEXTS, "--scorer", "builtin", "--scorer", "builtin_b"),
        "builtin and builtin_b both score toxicity",
    ),
    "scorer of choices": ((*RUN, "--model", "fake/A", "--scorer", "builtin"), "remove --scorer"),
    "missing weights": ((*RUN, "--model", "local/nothing.gguf"), "nothing.gguf"),
    "no run there": (("report", "r"), "holds no run"),
    "no run to show": (("run", "show", "r"), "holds no run"),
    "no run to export": (("run", "export", "r"), "holds no run"),
    "standard output as a run": (
        ("run", "--model", "fake/A", "--out", "-"),
        "a run cannot be written to standard output",
    ),
    "a file as a run": (("audit", "fake/A", "--out", __file__), "is a file; --out names a folder"),
    "a folder as a system prompt": (
        (*RUN, "--model", "fake/A", "--system", "."),
        ". is a folder; --system takes a file or the text of a system prompt.",
    ),
    "a cache below a file": (
        (*RUN, "--model", "fake/A", "--cache", f"{__file__}/cache"),
        "cannot be opened (File exists); pass --no-cache or another --cache.",
    ),
    "a folder as a card": (
        ("judges", "check", "fake/A", "--metric", "refusal", "--card", ".", "--dry-run"),
        "--card names the card of the judge, a file, not the folder .",
    ),
    "a card below a file": (
        ("judges", "check", "fake/A", "--metric", "refusal", "--card", f"{__file__}/card.json", "--dry-run"),
        f"--card names the card of the judge, a file in a folder, but {__file__} is a file.",
    ),
    "a page below a file": (
        ("judges", "check", "fake/A", "--metric", "refusal", "--out", f"{__file__}/x.html", "--dry-run"),
        f"--out names the page, a file in a folder, but {__file__} is a file.",
    ),
    "a report of a run without one": (("run", "--model", "fake/A", "--out", "x.html"), "writes no report"),
    "a paper's folder that is a page": (
        ("papers", "malibu", "-m", "fake/A", "--out", "x.html"),
        "--out of a paper is a folder",
    ),
    "budget without a price": (
        (*RUN, "--model", "openai/x", "--base-url", "http://127.0.0.1:9/v1", "--budget", "$1"),
        "pass --price openai/x=INPUT/OUTPUT",
    ),
    "missing file of data": ((*RUN, "--model", "fake/A", "-b", "realtoxicity"), "realtoxicity/prompts.jsonl"),
    "nobody listens": (("doctor", "openai/x", "--base-url", "http://127.0.0.1:9/v1"), "127.0.0.1:9"),
    "a plan without --config": (
        ("run", "plan.yaml"),
        "'plan.yaml'; give a file with --config plan.yaml.",
    ),
    "an address as a model": (("audit", "http://user:secret@127.0.0.1:9/v1"), "An address is not a model spec"),
    "a model as a suite": (("suite", "fake/A"), "as in `evenhand suite quick --model local/builtin`"),
    "a word as a limit": (("audit", "fake/A", "--limit", "x"), "'x' is not a valid integer."),
    "unknown data set": (("data", "pull", "bqb"), "bbq"),
    "unknown weights": (("models", "pull", "builtinn"), "builtin"),
    "predictions that are not there": (("metrics", "bbq", "none.jsonl", "--builtin"), "none.jsonl"),
}


@pytest.mark.parametrize(("arguments", "hint"), CASES.values(), ids=CASES.keys())
def test_one_sentence_and_exit_code_2(cli, tmp_path: Path, arguments: tuple[str, ...], hint: str):
    result = cli(*arguments)

    assert result.code == 2, result
    assert hint in result.err
    assert "Traceback" not in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("models: [fake/A\nlimit: 3", "line 2"),
        ("model: fake/A", "models"),
        ("- fake/A", "field: value"),
        ("models: [fake/A]\nlimit: many", "limit"),
        ("models: [fake/A]\nmethods: []", "methods"),
    ],
)
def test_a_wrong_plan_file_names_the_place(cli, tmp_path: Path, text: str, place: str):
    (tmp_path / "plan.yaml").write_text(text)

    result = cli("run", "--config", "plan.yaml", "--out", "r")

    assert result.code == 2
    assert place in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_run_directory_of_another_plan_is_left_alone(cli, tmp_path: Path):
    cli("run", "--model", "fake/A", "--limit", "4", "--out", "r")
    before = (tmp_path / "r" / "run.sqlite").read_bytes()

    again = cli("run", "--model", "fake/A", "--limit", "4", "--out", "r")
    other = cli("run", "--model", "fake/B", "--limit", "4", "--out", "r", "--resume")

    assert (again.code, other.code) == (2, 2)
    assert "--resume" in again.err
    assert "another plan" in other.err
    assert (tmp_path / "r" / "run.sqlite").read_bytes() == before


def test_a_folder_with_something_else_in_it_is_left_alone(cli, tmp_path: Path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.tex").write_text("mine")

    result = cli("run", "--model", "fake/A", "--limit", "4", "--out", "r")

    assert result.code == 2
    assert [each.name for each in (tmp_path / "r").iterdir()] == ["thesis.tex"]


def test_a_prediction_file_is_checked_line_by_line(cli, tmp_path: Path):
    (tmp_path / "p.jsonl").write_text('{"category": "Age", "example_id": 0, "prediction": 1}\n{"category": "Age"}\n')

    result = cli("metrics", "bbq", "p.jsonl", "--builtin")

    assert result.code == 2
    assert "p.jsonl, line 2" in result.err


@pytest.mark.parametrize("command", ["run show", "report", "run export", "compare", "resume", "run rescore"])
def test_a_file_in_place_of_its_run_is_answered_with_the_folder(cli, command: str):
    cli("audit", "fake/A", "--limit", "4", "--out", "r")
    more = ("--scorer", "builtin") if command == "run rescore" else ()

    result = cli(*command.split(), "r/report.html", *more)

    assert result.code == 2
    assert "r/report.html is a file; name the folder of its run: r." in result.err


def test_an_error_in_code_of_the_users_own_is_no_fault_of_ours(cli, tmp_path: Path):
    (tmp_path / "own.py").write_text(
        "from evenhand.benchmarks.base import BENCHMARKS\n"
        '@BENCHMARKS.register("fails")\n'
        'class Own(BENCHMARKS.get("bbq_builtin")):\n'
        "    def samples(self, selection):\n"
        "        raise KeyError('row 3')\n"
    )

    result = cli("audit", "fake/A", "-b", "own.py", "--out", "r")

    assert result.code == 2
    assert f"{tmp_path / 'own.py'}, line 5, in samples: KeyError: 'row 3'." in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_path_that_ends_in_html_is_the_report(cli, tmp_path: Path):
    cli("run", "--model", "fake/A", "--limit", "4", "--out", "r")

    stored = cli("compare", "r", "--out", "mine.html")
    made = cli("audit", "fake/A", "--limit", "8", "--out", "deep/other.html")

    assert (stored.code, made.code) == (0, 0)
    assert (tmp_path / "mine.html").is_file()
    assert (tmp_path / "deep/other.html").is_file()
    assert next((tmp_path / "runs").rglob("run.sqlite"))


@pytest.mark.parametrize("command", ["report", "run export"])
def test_an_output_file_is_neither_a_folder_nor_standard_output(cli, command: str):
    cli("run", "--model", "fake/A", "--limit", "4", "--out", "r")

    assert "a file, not standard output" in cli(*command.split(), "r", "--out", "-").err
    assert "a file, not the folder r" in cli(*command.split(), "r", "--out", "r").err


def test_what_the_system_says_through_a_library_of_another_language_is_no_fault_of_ours(tmp_path: Path):
    """safetensors has an error of its own for a full disk; here for a file that is larger than allowed."""
    script = (
        "import resource, numpy\n"
        "from safetensors.numpy import save_file\n"
        "from evenhand.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "main.main = lambda **_: save_file({'a': numpy.zeros(9999)}, 'weights')\n"
        "main.entry()\n"
    )

    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr == "evenhand: A file cannot be written or read: File too large. What was finished is kept.\n"
