"""Commands with several endpoints: options in specs, config files, the configured judge, prices."""

from pathlib import Path

import pytest

from evenhand.cli.progress import FAILED
from evenhand.runs.store import Store

AUDIT = ("audit", "openai/m", "--limit", "4", "--dry-run")
TWO = """
[providers.near]
base_urls = ["http://b/v1", "http://a/v1"]
key = "NEAR_KEY"
price = "1/2"
[providers.cloud]
type = "openai"
base_url = "https://c/v1"
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's config file; commands run in the folder above it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "evenhand").mkdir(parents=True)
    return tmp_path / "home" / "evenhand" / "config.toml"


def test_named_providers_are_listed_with_their_file(cli, config: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NEAR_KEY", "sk-secret")
    config.write_text(TWO)

    result = cli("models")

    assert "near           openai, http://a/v1, http://b/v1, key NEAR_KEY (set), price 1/2\n" in result.out
    assert "cloud          openai, https://c/v1\n" in result.out
    assert result.out.count(f"from {config}") == 2
    assert "sk-secret" not in result.out + result.err


def test_without_config_files_it_is_said_where_they_go(cli, config: Path):
    assert f"No named providers in {config} or evenhand.toml." in cli("models").out


def test_a_models_own_options_win_over_flags(cli, tmp_path: Path):
    result = cli(
        "run", "--model", "fake/A", "--judge", "fake/B?timeout=5&price=1/2", "--method", "mabrf_first",
        "--timeout", "9", "--retries", "1", "--limit", "2", "--out", "r",
    )  # fmt: skip

    assert result.code == FAILED  # a fake judge cannot be read
    [models] = Store(tmp_path / "r").get("plan")["models"]
    assert (models["base"]["timeout"], models["judge"]["timeout"]) == (9, 5)
    assert (models["judge"]["spec"], models["judge"]["retries"]) == ("fake/B", 1)
    assert models["judge"]["price"] == {"input": 1.0, "output": 2.0}


def test_roles_of_flags_are_added_to_the_models_of_a_plan_file(cli, tmp_path: Path):
    (tmp_path / "plan.yaml").write_text("methods: [mabrf_first]\nlimit: 2\nmodels: [{spec: fake/A, timeout: 7}]\n")

    result = cli("run", "--config", "plan.yaml", "--judge", "fake/B", "--timeout", "9", "--out", "r")

    assert result.code == FAILED  # a fake judge cannot be read
    [models] = Store(tmp_path / "r").get("plan")["models"]
    assert (models["base"]["timeout"], models["judge"]["timeout"]) == (7, 9)


def test_the_configured_judge_is_used_shown_and_priced(cli, config: Path):
    config.write_text('judge = "near/j"\n' + TWO.replace("1/2", "1000/2000"))
    prices = ("--price", "openai/m=0/0")

    with_judge = cli(*AUDIT, "--method", "mabrf_first", *prices)
    named = cli(*AUDIT, "--method", "mabrf_first", *prices, "--judge", "fake/B")
    without = cli(*AUDIT, *prices)

    assert with_judge.err == f"The judge is near/j at http://a/v1,http://b/v1, as {config} says.\n"
    assert "$0.00" not in with_judge.out and "$" in with_judge.out
    assert (named.err, without.err) == ("", "")
    assert "$0.00" in named.out and "$0.00" in without.out


def test_the_configured_judge_scores_texts_where_the_scorer_names_no_model(cli, config: Path):
    config.write_text('judge = "fake/B"\n')

    result = cli("audit", "fake/A", "-b", "realtoxicity_builtin", "--limit", "1", "--dry-run")

    assert result.err == f"The judge is fake/B, as {config} says.\n"


def test_the_configured_judge_reaches_papers(cli, config: Path):
    config.write_text('judge = "fake/B"\n')

    mabrf = cli("papers", "mabrf", "--model", "fake/A", "--builtin", "--limit", "1", "--dry-run")
    malibu = cli("papers", "malibu", "--model", "fake/A", "--limit", "1", "--dry-run")

    assert mabrf.err == f"The judge is fake/B, as {config} says.\n"
    assert (mabrf.code, malibu.code, malibu.err) == (0, 0, "")


def test_a_price_of_no_model_of_the_run_is_refused_with_the_near_one(cli):
    result = cli(*AUDIT, "--price", "openai/n=1/2")

    assert result.code == 2
    assert result.err == "evenhand: --price: There is no model of this run named 'openai/n'; did you mean openai/m?\n"


def test_a_judge_of_a_scorer_may_have_a_price(cli):
    texts = ("audit", "openai/m", "-b", "realtoxicity_builtin", "--limit", "1", "--dry-run")

    result = cli(*texts, "-s", "judge:openai/s", "--price", "openai/s=1/2", "--price", "openai/m=1/2")

    assert (result.code, "price unknown" in result.out) == (0, False)


def test_a_project_sets_the_folder_and_the_budget_of_runs(cli, tmp_path: Path):
    (tmp_path / "evenhand.toml").write_text('out = "results"\nbudget = "3 calls"\nconcurrency = 1\n')

    stopped = cli("run", "--model", "fake/A", "--limit", "10", "--no-cache")
    whole = cli("run", "--model", "fake/A", "--limit", "10", "--budget", "1000 calls", "--out", "own")

    assert (stopped.code, whole.code) == (3, 0)
    [folder] = (tmp_path / "results").iterdir()
    assert folder.name.startswith("bbq_builtin-")


@pytest.mark.parametrize(
    ("text", "model", "words"),
    [
        ("budget = 3\n", "fake/A", "evenhand.toml, line 1: budget must be a text"),
        ('judge = "gpt"\n', "fake/A", "'gpt' is not a model spec"),
        ("[providers.x]\n", "x/m", "evenhand.toml, line 1: the provider x has no base_url"),
    ],
)
def test_a_mistake_in_a_config_file_is_one_sentence(cli, tmp_path: Path, text: str, model: str, words: str):
    (tmp_path / "evenhand.toml").write_text(text)

    result = cli("audit", model, "--method", "mabrf_first", "--dry-run")

    assert result.code == 2
    assert words in result.err and result.err.count("\n") == 1


def test_a_model_option_that_no_model_takes_is_refused(cli):
    wrong = cli(*AUDIT, "--model-option", "reasonning=true")

    assert wrong.code == 2
    assert "There is no model option named 'reasonning'; did you mean reasoning" in wrong.err
    assert cli("audit", "fake/A", "--judge", "openai/j?key=K", "--method", "mabrf", "--model-option", "extra_body={}",
               "--limit", "2", "--dry-run").code == 0  # fmt: skip


def test_an_effort_is_for_models_that_take_it(cli):
    refused = cli("audit", "fake/A", "--limit", "2", "--reasoning-effort", "low")

    assert refused.code == 2
    assert refused.err.count("\n") == 1
