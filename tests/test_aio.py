"""Public functions in scripts, in running event loops and awaited: where their work runs, and how it is stopped."""

import asyncio
import contextvars
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from evenhand import api
from evenhand.core import aio
from evenhand.core.errors import UsageError

MARK: contextvars.ContextVar[str] = contextvars.ContextVar("mark", default="none")


async def where() -> tuple[str, str]:
    await asyncio.sleep(0)
    return threading.current_thread().name, MARK.get()


@aio.facade
def ask() -> tuple[str, str]:
    """Says where it runs."""
    return aio.run(where())


@aio.facade
def ask_through_another() -> tuple[str, str]:
    return ask()


def test_a_public_function_looks_like_the_function_that_it_is():
    for name, each in vars(api).items():
        if inspect.isfunction(each) and each.__module__ == api.__name__ and not name.startswith("_"):
            assert inspect.iscoroutinefunction(each.async_), name  # pyright: ignore[reportFunctionMemberAccess]
            assert each.__doc__ and next(iter(inspect.signature(each).parameters)), name

    assert inspect.signature(api.audit) == inspect.signature(api.audit.async_)
    assert not inspect.iscoroutinefunction(api.audit)


def test_without_a_facade_the_work_is_done_in_this_thread():
    assert aio.run(where())[0] == threading.current_thread().name


def test_all_synchronous_calls_share_one_lasting_loop():
    assert {ask()[0], ask_through_another()[0], aio.run_lasting(where())[0]} == {"evenhand"}


async def test_a_synchronous_call_works_in_a_running_loop_and_keeps_the_context():
    MARK.set("here")

    assert ask() == ("evenhand", "here")


async def test_the_async_form_works_on_the_loop_of_its_caller():
    MARK.set("here")
    before = threading.current_thread().name

    assert await ask.async_() == await ask_through_another.async_() == (before, "here")


async def test_many_async_forms_do_not_wait_for_each_others_threads():
    @aio.facade
    def work() -> str:
        return aio.run(asyncio.to_thread(lambda: "done"))

    assert await asyncio.gather(*(work.async_() for _ in range(40))) == ["done"] * 40


async def test_an_error_of_the_work_is_raised_to_the_caller():
    @aio.facade
    def fail() -> None:
        aio.run(_raise(ValueError("no")))

    with pytest.raises(ValueError, match="no"):
        fail()
    with pytest.raises(ValueError, match="no"):
        await fail.async_()


async def _raise(error: BaseException) -> None:
    raise error


def test_what_ends_a_process_does_not_end_the_lasting_loop():
    @aio.facade
    def leave() -> None:
        aio.run(_raise(SystemExit(3)))

    with pytest.raises(SystemExit):
        leave()
    assert ask()[0] == "evenhand"


async def test_cancelling_the_async_form_cancels_its_work_and_what_would_follow():
    began, steps = asyncio.Event(), list[str]()

    async def wait() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            steps.append("closed")

    @aio.facade
    def work() -> None:
        try:
            aio.run(wait())
        finally:
            aio.run(_raise(ValueError("this must not begin")))

    task = asyncio.create_task(work.async_())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert steps == ["closed"]


def test_a_call_that_would_wait_for_its_own_loop_is_refused():
    async def inside() -> None:
        ask()

    with pytest.raises(UsageError, match="await its async form"):
        aio.run_lasting(inside())


@pytest.mark.parametrize("running", ["work()", "asyncio.run(main())"])
def test_ctrl_c_closes_what_is_open(running: str):
    script = f"""
import asyncio, os, signal, threading
from evenhand.core import aio

async def wait():
    try:
        threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)).start()
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        print("closed", flush=True)

@aio.facade
def work():
    aio.run(wait())

async def main():
    work()

try:
    {running}
except KeyboardInterrupt:
    print("interrupted")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert (ended.stdout.split(), ended.returncode) == (["closed", "interrupted"], 0), ended.stderr


@pytest.fixture(autouse=True)
def _the_usual_ctrl_c() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before
