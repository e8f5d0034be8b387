"""Where a model is reached: its spec's own options, the config files, the defaults, and which key goes where."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import DataError, EndpointError, UnknownNameError, UsageError
from evenhand.core.types import Message, Params, Price
from evenhand.models import endpoints
from evenhand.models.base import ModelOptions
from evenhand.models.endpoints import resolved
from evenhand.models.load import load_model, reached
from support.fixtures import Serve
from support.server import chat, refuse

QUESTION = [Message("user", "Hello?")]
VLLM = """
[providers.local-vllm]
base_url = "http://vllm/v1"
key = "VLLM_KEY"
price = "1/2"
timeout = 300
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's config file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "evenhand").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home" / "evenhand" / "config.toml"


def test_a_spec_carries_its_own_options():
    spec, fields = resolved(
        "openai/org/gpt?base_url=https://x/v1?api-version=1&key=JUDGE_KEY&timeout=30&retries=0&concurrency=8"
        "&price=0.15/0.60&extra_body={top_k: 5}"
    )

    assert spec == "openai/org/gpt"
    assert fields == {
        "provider": "openai",
        "base_url": "https://x/v1?api-version=1",
        "key": "JUDGE_KEY",
        "timeout": 30.0,
        "retries": 0,
        "concurrency": 8,
        "price": Price(0.15, 0.60),
        "extra": {"extra_body": {"top_k": 5}},
    }


@pytest.mark.parametrize("spec", ["fake/Why?", "fake/a = b?", "local/a?b.gguf"])
def test_a_question_mark_alone_is_part_of_the_name(spec: str):
    assert resolved(spec)[0] == spec


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("openai/x?base_ulr=http://a/v1", "no option of the model openai/x named 'base_ulr'; did you mean base_url"),
        ("openai/x?max_concurrency=8", "did you mean concurrency"),
        ("local/x?base_url=http://a/v1", "no option of the model local/x named 'base_url'"),
        ("openai/x?timeout=soon", "The option timeout of the model openai/x must be a number of seconds, not 'soon'"),
        ("openai/x?retries=1.5", "must be a whole number"),
        ("openai/x?price=cheap", "must be INPUT/OUTPUT"),
        ("openai/x?timeout=3&retries", "'retries' has no value"),
        ("opnai/x?timeout=3", "no model provider named 'opnai'; did you mean openai"),
        ("gpt", "'gpt' is not a model spec"),
    ],
)
def test_a_mistake_in_a_spec_is_told_in_one_sentence(spec: str, words: str):
    with pytest.raises(UsageError, match=words) as caught:
        resolved(spec)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "secret", ["sk-proj-4f9a", "hf_abcdefGHIJ1234567", "gsk_a1b2c3", "AKIA1234567890ABCDEF", "a key"]
)
def test_a_key_in_place_of_its_variable_is_refused_and_not_repeated(secret: str):
    with pytest.raises(UsageError, match="the name of an environment variable that holds the key") as caught:
        resolved(f"openai/x?key={secret}")

    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://me:sk-hidden@h/v1", "https://h/v1?api-key=sk-hidden", "https://h/v1/sk-hidden-4f9aK2mQ7x/v1"]
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(url: str):
    for spec, defaults in ((f"openai/x?base_url={url}", {}), ("openai/x", {"base_url": url})):
        with pytest.raises(UsageError, match="without a password or key") as caught:
            resolved(spec, defaults=defaults)

        assert "sk-hidden" not in str(caught.value)


async def test_an_endpoint_that_wants_a_key_says_how_to_name_it(serve: Serve):
    server = await serve(refuse("who are you?", status=401))

    async with load_model(f"openai/x?base_url={server.url}") as model:
        with pytest.raises(EndpointError, match=r"it was sent no API key.*name the variable"):
            await model.generate(QUESTION, Params())


def test_a_variable_that_is_set_may_have_any_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("my_key", "sk-1")

    assert resolved("openai/x?key=my_key")[1]["key"] == "my_key"


def test_a_key_variable_that_is_not_set_is_told_before_the_first_call():
    with pytest.raises(UsageError, match="environment variable JUDGE_KEY should hold an API key, but it is not set"):
        load_model("openai/x?base_url=http://a/v1&key=JUDGE_KEY")


def test_a_named_provider_is_an_endpoint_with_a_name(user: Path, monkeypatch: pytest.MonkeyPatch):
    user.write_text(VLLM)
    monkeypatch.setenv("VLLM_KEY", "sk-vllm")

    model = load_model("local-vllm/qwen/3")

    assert model.spec == "local-vllm/qwen/3"
    assert model.fingerprint()["endpoint"] == "http://vllm/v1/chat/completions"
    assert reached("local-vllm/qwen/3")[1].timeout == 300


@pytest.mark.parametrize(
    ("spec", "defaults", "expected"),
    [
        ("local-vllm/q", {"timeout": 9}, {"timeout": 9}),
        ("local-vllm/q?timeout=5", {"timeout": 9}, {"timeout": 5.0}),
        ("local-vllm/q", {"base_url": "http://flag/v1"}, {"base_url": "http://vllm/v1", "key": "VLLM_KEY"}),
        ("local-vllm/q?base_url=http://own/v1", {}, {"base_url": "http://own/v1", "key": ""}),
        ("openai/q", {"base_url": "http://flag/v1"}, {"base_url": "http://flag/v1", "key": None}),
        ("openai/q?base_url=http://own/v1", {"base_url": "http://flag/v1", "key": "K"}, {"key": ""}),
        ("openai/q?key=OTHER", {"base_url": "http://flag/v1"}, {"base_url": "http://flag/v1", "key": "OTHER"}),
        ("openai/q", {"extra": {"a": 1}}, {"extra": {"a": 1}}),
    ],
)
def test_specs_win_over_flags_and_flags_over_files(user: Path, spec: str, defaults: Any, expected: dict[str, Any]):
    user.write_text(VLLM)

    fields = resolved(spec, defaults=defaults)[1]

    assert {name: fields.get(name) for name in expected} == expected


def test_a_flag_wins_over_the_file_for_a_provider_with_its_usual_name(user: Path):
    user.write_text('[providers.openai]\nbase_url = "http://gateway/v1"\nkey = "GATEWAY_KEY"\n')

    assert resolved("openai/q")[1]["key"] == "GATEWAY_KEY"
    flagged = resolved("openai/q", defaults={"base_url": "http://flag/v1"})[1]
    assert (flagged["base_url"], flagged["key"]) == ("http://flag/v1", None)


def test_prices_come_from_the_spec_then_the_table_then_the_provider(user: Path):
    user.write_text(VLLM + '[prices]\n"local-vllm/a" = "3/4"\n"openai/b" = "5/6"\n')

    assert resolved("local-vllm/a?price=9/9")[1]["price"] == Price(9, 9)
    assert resolved("local-vllm/a")[1]["price"] == Price(3, 4)
    assert resolved("local-vllm/z")[1]["price"] == Price(1, 2)
    assert resolved("openai/b")[1]["price"] == Price(5, 6)
    assert "price" not in resolved("openai/z")[1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ('base_url = "http://a/v1"\ntimeot = 3', "line 3: There is no option of the provider a named 'timeot'; did"),
        ('base_url = "http://a/v1"\nkey = "sk-secret-1"', "line 3: The option key of the provider a must be the name"),
        (
            'type = "opena"\nbase_url = "http://a/v1"',
            "line 2: There is no model provider named 'opena'; did you mean openai",
        ),
        ('base_url = "http://a/v1"\nbase_urls = ["http://b/v1"]', "line 3: the provider a has base_url and base_urls"),
        ("timeout = 3", "line 1: the provider a has no base_url"),
    ],
)
def test_a_mistake_in_a_provider_is_told_with_file_and_line(user: Path, fields: str, words: str):
    user.write_text(f"[providers.a]\n{fields}\n")

    with pytest.raises(DataError) as caught:
        resolved("a/x")

    assert str(caught.value).startswith(f"{user}, {words}")
    assert "sk-secret-1" not in str(caught.value)


def test_an_unknown_provider_is_told_with_the_named_ones(user: Path):
    user.write_text(VLLM)

    with pytest.raises(UnknownNameError, match="did you mean local-vllm"):
        load_model("local-vlm/x")


def test_a_file_of_the_project_that_redirects_calls_is_named_once(
    user: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(endpoints, "_told", set[str]())
    project = user.parents[2] / "work" / "evenhand.toml"
    project.write_text('[providers.openai]\nbase_url = "http://theirs/v1"\nkey = "OPENAI_API_KEY"\n')

    with caplog.at_level(logging.WARNING):
        resolved("openai/a")
        resolved("openai/b")

    said = f"evenhand: {project} sends openai/ to http://theirs/v1 with the key in OPENAI_API_KEY."
    assert caplog.messages == [said]


async def test_each_endpoint_is_sent_the_key_that_it_names_and_no_other(
    serve: Serve, user: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("OPENAI_API_KEY", "VLLM_KEY", "OTHER_KEY"):
        monkeypatch.setenv(name, f"sk-{name}")
    server = await serve(chat("B"))
    named = VLLM.replace("http://vllm/v1", server.url) + f'[providers.open]\nbase_url = "{server.url}"\n'
    await asyncio.to_thread(user.write_text, named)
    flags = ModelOptions(base_url=server.url)

    for spec in ("local-vllm/a", "open/b", f"openai/c?base_url={server.url}", "openai/d?key=OTHER_KEY", "openai/e"):
        async with load_model(spec, flags) as model:
            await model.generate(QUESTION, Params())

    sent = [each.headers.get("Authorization") for each in server.requests]
    assert sent == ["Bearer sk-VLLM_KEY", None, None, "Bearer sk-OTHER_KEY", "Bearer sk-OPENAI_API_KEY"]
    assert [each["model"] for each in server.bodies] == ["a", "b", "c", "d", "e"]
