"""Where requests go and how the key is sent; where that is said by no reply."""

import pytest

from evenhand.core.errors import EndpointError, UsageError
from evenhand.core.types import Message, Params
from evenhand.models.base import ModelOptions
from evenhand.models.openai import OpenAIModel, endpoint_url, key_header
from support.fixtures import Connect, Serve
from support.server import chat, refuse

QUESTION = [Message("user", "Who?")]

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
        "https://host/v1/sk-sekret-4f9aK2mQ7x/openai",
        "https://host/v1/sekret3fA9x2Lq8Zt1Kd7Vb5/openai",
        "https://host/sekret/5f4dcc3b5aa765d61d8327deb882cf99",
        "https://host/v1/sekret9-3fA9x2Lq8Zt1_Kd7Vb5Np0Rw",
    ],
)
def test_a_base_url_with_a_secret_is_refused_without_repeating_it(base: str):
    with pytest.raises(UsageError, match="put it into OPENAI_API_KEY") as caught:
        endpoint_url(base)

    assert "sekret" not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "openai/deployments/gpt-4o-mini-2024-07-18-global-standard",
        "openai/deployments/a81f3c07d5e94b62ffab1290cd3e4578",
        "v1/projects/my-project-123456/locations/us-central1/endpoints/openapi",
        "prod-eu1-a100-x2-q4k-v3-b2-k8s/v1",
        "MyCompanyGpt4oMiniDeployment2024/v1",
        "model/us.anthropic.claude-3-5-sonnet-20241022-v2:0",
        "Mixtral-8x7B-Instruct-v0.1-AWQ-4bit-g128/v1",
        "teams/1b4e28ba-2fa1-11d2-883f-0016d3cca427/v1",
        "v2/vllm-7x2k9qa0b3c4d5/openai/v1",
        "v1/90071992547409919007/v1",
    ],
)
def test_names_and_ids_in_a_path_are_no_secrets(path: str):
    assert endpoint_url(f"https://host/{path}") == f"https://host/{path}/chat/completions"


def test_the_account_of_a_known_gateway_is_no_secret():
    base = "https://gateway.ai.cloudflare.com/v1/5f4dcc3b5aa765d61d8327deb882cf99/team/openai"

    assert endpoint_url(base) == f"{base}/chat/completions"


async def test_a_key_in_the_path_comes_from_the_environment_and_is_not_shown(
    serve: Serve, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    key = "a/3fA9x2Lq8Zt1Kd7Vb5"
    server = await serve(refuse(f"{key} may not", status=403), chat("B"))
    monkeypatch.setenv("GATEWAY_KEY", key)
    model = connect(f"{server.url}/${{GATEWAY_KEY}}/$GATEWAY_KEY")

    with pytest.raises(EndpointError, match=r"\$GATEWAY_KEY.*\[key\] may not") as refused:
        await model.generate(QUESTION, Params())
    await model.generate(QUESTION, Params())

    assert [each.path for each in server.requests] == [f"/v1/{key}/{key}/chat/completions"] * 2
    assert key not in f"{refused.value} {model.fingerprint()} {model.url}"


def test_a_variable_of_the_path_that_is_not_set_is_told():
    with pytest.raises(UsageError, match="needs the environment variable GATEWAY_KEY, which is not set"):
        OpenAIModel("x", ModelOptions(base_url="https://host/$GATEWAY_KEY/v1"))


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
