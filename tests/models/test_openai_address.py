"""Where requests go and how the key is sent; no network is needed to know."""

import pytest

from evenhand.core.errors import UsageError
from evenhand.models.base import ModelOptions
from evenhand.models.openai import OpenAIModel, endpoint_url, key_header

AZURE = "https://team.openai.azure.com/openai/deployments/gpt?api-version=2024-06-01"


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("http://localhost:8000/v1", "http://localhost:8000/v1/chat/completions"),
        ("http://localhost:8000/v1/", "http://localhost:8000/v1/chat/completions"),
        ("http://localhost:8000/v1/chat/completions", "http://localhost:8000/v1/chat/completions"),
        ("http://localhost:8000", "http://localhost:8000/chat/completions"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1/chat/completions"),
        (AZURE, f"{AZURE.replace('?', '/chat/completions?')}"),
    ],
)
def test_the_address_is_made_from_the_base_url(base: str, address: str):
    assert endpoint_url(base) == address


@pytest.mark.parametrize(
    "base", ["localhost:8000", "ftp://host/v1", "http://", "v1", "http://[::1", "http://host:99999/v1", "http://h:x/v1"]
)
def test_a_bad_base_url_is_refused_with_an_example(base: str):
    with pytest.raises(UsageError, match="not a base URL; write it like http://localhost:8000/v1"):
        endpoint_url(base)


@pytest.mark.parametrize(
    "base",
    [
        "http://me:sekret@host/v1",
        "http://sekret@host/v1",
        "https://host/v1?key=sekret",
        "https://host/v1?api-version=1&subscription-key=sekret",
        "https://host/v1?access_token=sekret",
    ],
)
def test_a_base_url_with_a_secret_is_refused_without_repeating_it(base: str):
    with pytest.raises(UsageError, match="put it into OPENAI_API_KEY") as caught:
        endpoint_url(base)

    assert "sekret" not in str(caught.value)


def test_azure_gets_its_own_header():
    assert key_header(endpoint_url(AZURE), "k1") == {"api-key": "k1"}


@pytest.mark.parametrize(
    "base", ["https://api.openai.com/v1", "http://localhost/v1", "https://azure.com.example.org/v1"]
)
def test_all_others_get_a_bearer_token(base: str):
    assert key_header(endpoint_url(base), "k1") == {"Authorization": "Bearer k1"}


def test_no_key_is_no_header():
    assert key_header(endpoint_url(AZURE), "") == {}


@pytest.mark.parametrize("base", [None, "https://api.openai.com/v1", "https://api.openai.com/v1/"])
def test_the_default_endpoint_needs_a_key(base: str | None):
    with pytest.raises(UsageError, match="set OPENAI_API_KEY, or name another endpoint"):
        OpenAIModel("gpt", ModelOptions(base_url=base))


def test_the_environment_names_the_endpoint(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1234/v1")

    assert OpenAIModel("x", ModelOptions()).url == "http://localhost:1234/v1/chat/completions"
    assert OpenAIModel("x", ModelOptions(base_url="http://other/v1")).url == "http://other/v1/chat/completions"


@pytest.mark.parametrize("key", ["sk-one two", "sk-line\nbreak", "sk-ключ"])
def test_a_key_that_cannot_be_sent_is_refused_without_repeating_it(monkeypatch: pytest.MonkeyPatch, key: str):
    monkeypatch.setenv("OPENAI_API_KEY", key)

    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        OpenAIModel("x", ModelOptions(base_url="http://localhost/v1"))

    assert "sk-" not in str(caught.value)


def test_an_extra_body_must_be_a_map():
    with pytest.raises(UsageError, match="extra_body must be a mapping"):
        OpenAIModel("x", ModelOptions(base_url="http://localhost/v1", extra={"extra_body": "top_k"}))
