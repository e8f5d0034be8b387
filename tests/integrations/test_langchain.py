"""A chat model of LangChain behind a guard."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="needs pip install 'evenhand[langchain]'")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate

from evenhand import audit
from evenhand.core.errors import UsageError
from evenhand.guards.upstream import UpstreamError
from evenhand.integrations.langchain import GuardedChat, LangChainModel
from support.guard_server import CLEAN, RUDE


class Chat(BaseChatModel):
    """Answers as a function does."""

    answer: Callable[[list[BaseMessage]], str]
    asked: list[list[BaseMessage]]

    @property
    def _llm_type(self) -> str:
        return "test"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked.append(messages)
        used: Any = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
        message = AIMessage(content=self.answer(messages), usage_metadata=used)
        return ChatResult(generations=[ChatGeneration(message=message)])


def rude_at_first(messages: list[BaseMessage]) -> str:
    return CLEAN if "faults" in messages[-1].text else RUDE


def record(message: BaseMessage) -> dict[str, Any]:
    return message.response_metadata["evenhand"]


def test_a_good_answer_passes_through() -> None:
    chat = Chat(answer=lambda _: CLEAN, asked=[])
    answer = GuardedChat(model=chat).invoke("How is the weather?")
    assert answer.text == CLEAN
    assert record(answer)["action"] == "passed"
    assert len(chat.asked) == 1
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["total_tokens"] == 7


def test_a_refusal_stays_one() -> None:
    class Refusing(Chat):
        def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
            message = AIMessage(content="", additional_kwargs={"refusal": "I cannot help with that."})
            return ChatResult(generations=[ChatGeneration(message=message)])

    answer = GuardedChat(model=Refusing(answer=lambda _: "", asked=[])).invoke("How?")
    assert answer.additional_kwargs == {"refusal": "I cannot help with that."}


async def test_a_rude_answer_is_revised() -> None:
    chat = Chat(answer=rude_at_first, asked=[])
    answer = await GuardedChat(model=chat).ainvoke("How is the weather?")
    assert answer.text == CLEAN
    found = record(answer)
    assert (found["action"], found["why"]) == ("revised", ["toxicity"])
    assert found["checks"][0]["passed"]
    assert len(chat.asked) > 1


def test_a_policy_and_its_text() -> None:
    chat = Chat(answer=lambda _: RUDE, asked=[])
    blocked = GuardedChat(model=chat, policy="block", options={"blocked_text": "Withheld."}).invoke("Hello?")
    assert (blocked.text, record(blocked)["action"]) == ("Withheld.", "blocked")
    flagged = GuardedChat(model=chat, policy="flag").invoke("Hello?")
    assert (flagged.text, record(flagged)["action"]) == (RUDE, "flagged")


def test_it_stands_in_chains_and_streams_only_what_was_checked() -> None:
    chain = ChatPromptTemplate.from_messages([("human", "{question}")]) | GuardedChat(
        model=Chat(answer=rude_at_first, asked=[])
    )
    assert (chain | StrOutputParser()).invoke({"question": "How is the weather?"}) == CLEAN
    assert "".join(chunk.text for chunk in chain.stream({"question": "How is it?"})) == CLEAN
    assert [each.text for each in chain.batch([{"question": "One?"}, {"question": "Two?"}])] == [CLEAN, CLEAN]


def test_callbacks_see_the_inner_calls() -> None:
    class Seen(BaseCallbackHandler):
        def __init__(self) -> None:
            self.parents: list[Any] = []

        def on_chat_model_start(self, *_: Any, parent_run_id: Any = None, **__: Any) -> None:
            self.parents.append(parent_run_id)

    seen = Seen()
    GuardedChat(model=Chat(answer=lambda _: CLEAN, asked=[], callbacks=[seen])).invoke("Hello?")
    assert len(seen.parents) == 1


def test_what_cannot_be_checked_is_refused() -> None:
    guarded = GuardedChat(model=Chat(answer=lambda _: CLEAN, asked=[]))
    picture = HumanMessage(content=[{"type": "image_url", "image_url": {"url": "data:,"}}])
    with pytest.raises(UsageError, match="text alone"):
        guarded.invoke([picture])
    with pytest.raises(NotImplementedError):
        guarded.bind_tools([])


def test_a_failure_of_the_model_is_a_failure() -> None:
    def fails(_messages: list[BaseMessage]) -> str:
        raise RuntimeError("the line is down")

    with pytest.raises(UpstreamError, match="the line is down"):
        GuardedChat(model=Chat(answer=fails, asked=[])).invoke("Hello?")


def test_a_chat_model_can_be_audited(tmp_path: Any) -> None:
    model = LangChainModel(Chat(answer=lambda _: "B", asked=[]))
    study = audit(model, out=tmp_path / "run", limit=6)
    assert study.arms[0].statuses == {"graded": 6}
