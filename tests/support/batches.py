"""A real server with the batch endpoints of OpenAI and of Anthropic, which counts what would be paid for."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web

Row = dict[str, Any]


@dataclass
class Stored:
    """A batch on the server."""

    id: str
    rows: list[Row]
    name: str = ""
    created: float = field(default_factory=time.time)
    looks: int = 0
    answers: list[Row] | None = None


class BatchServer:
    """Answers every request with `answer(body)`: the text, a status that failed, or None for an expired one."""

    def __init__(self, answer: Callable[[Row], str | int | None], *, looks: int = 2) -> None:
        self.answer = answer
        self.looks = looks
        """How often a batch is looked at before it has ended."""
        self.hold = False
        """Whether no batch ends."""
        self.lose = 0
        """How many submissions are taken, but not answered."""
        self.most = 10**6
        """Requests of a batch before the account's limit is exceeded."""
        self.locked = False
        """Whether looking at a batch is forbidden."""
        self.batches: list[Stored] = []
        self.files: dict[str, bytes] = {}
        self.live: list[Row] = []
        self.paid: Counter[bytes] = Counter()
        self.news = asyncio.Event()
        self.url = ""

    async def start(self) -> "BatchServer":
        app = web.Application(client_max_size=2**26)
        add = app.router.add_route
        add("POST", "/v1/chat/completions", self._alone)
        add("POST", "/v1/messages", self._alone)
        add("POST", "/v1/files", self._upload)
        add("GET", "/v1/files/{id}/content", self._content)
        for place in ("/v1/batches", "/v1/messages/batches"):
            add("POST", place, self._create)
            add("GET", place, self._list)
            add("GET", place + "/{id}", self._look)
        add("GET", "/v1/messages/batches/{id}/results", self._results)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def has_batches(self, count: int) -> None:
        while len(self.batches) < count:
            self.news.clear()
            await self.news.wait()

    def sizes(self) -> list[int]:
        return [len(each.rows) for each in self.batches]

    def _reply(self, body: Row, anthropic: bool) -> tuple[int | None, Row]:
        said = self.answer(body)
        if said is None or isinstance(said, int):
            error = {"type": "invalid_request_error" if said == 400 else "api_error", "message": "no"}
            return said, {"type": "error", "error": error}
        self.paid[orjson.dumps(body, option=orjson.OPT_SORT_KEYS)] += 1
        if anthropic:
            usage = {"input_tokens": 20, "output_tokens": 5}
            content = [{"type": "text", "text": said}]
            return 200, {"type": "message", "content": content, "stop_reason": "end_turn", "usage": usage}
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 20, "completion_tokens": 5}}

    async def _alone(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.live.append(body)
        status, reply = self._reply(body, request.path.endswith("/messages"))
        return web.json_response(reply, status=status or 500)

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["purpose"] == "batch"
        file: Any = form["file"]
        name = f"file-{len(self.files)}"
        self.files[name] = file.file.read()
        return web.json_response({"id": name})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if "requests" in body:
            made = Stored(f"msgbatch_{len(self.batches)}", body["requests"])
        else:
            assert body["endpoint"] == "/v1/chat/completions"
            assert body["completion_window"] == "24h"
            rows = [orjson.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
            made = Stored(f"batch_{len(self.batches)}", rows, body["metadata"]["evenhand"])
        assert len({row["custom_id"] for row in made.rows}) == len(made.rows)
        self.batches.append(made)
        self.news.set()
        if self.lose:
            self.lose -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(self._shown(made))

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [self._shown(each) for each in reversed(self.batches)], "has_more": False})

    async def _look(self, request: web.Request) -> web.Response:
        if self.locked:
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        found = next(each for each in self.batches if each.id == request.match_info["id"])
        found.looks += 1
        if found.answers is None and not self.hold and found.looks > self.looks and len(found.rows) <= self.most:
            found.answers = [self._row(row) for row in found.rows]
        return web.json_response(self._shown(found))

    def _row(self, row: Row) -> Row:
        name = row["custom_id"]
        if "params" in row:
            status, reply = self._reply(row["params"], anthropic=True)
            if status == 200:
                return {"custom_id": name, "result": {"type": "succeeded", "message": reply}}
            result = {"type": "expired"} if status is None else {"type": "errored", "error": reply}
            return {"custom_id": name, "result": result}
        status, reply = self._reply(row["body"], anthropic=False)
        if status is None:
            error = {"code": "batch_expired", "message": "This request could not be executed in time."}
            return {"custom_id": name, "response": None, "error": error}
        return {"custom_id": name, "response": {"status_code": status, "body": reply}, "error": None}

    def _shown(self, batch: Stored) -> Row:
        over = batch.answers is not None
        if batch.id.startswith("msg"):
            counts = {"processing": 0 if over else len(batch.rows), "succeeded": len(batch.rows) if over else 0}
            when = datetime.fromtimestamp(batch.created, UTC).isoformat()
            status = "ended" if over else "in_progress"
            return {"id": batch.id, "processing_status": status, "request_counts": counts, "created_at": when}
        shown: Row = {"id": batch.id, "metadata": {"evenhand": batch.name}, "status": "in_progress"}
        if len(batch.rows) > self.most:
            fault = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached"}
            return {**shown, "status": "failed", "errors": {"data": [fault]}}
        if not over:
            return shown
        good = [row for row in batch.answers or () if row["error"] is None]
        late = [row for row in batch.answers or () if row["error"] is not None]
        self.files[f"out-{batch.id}"] = b"\n".join(map(orjson.dumps, good))
        self.files[f"err-{batch.id}"] = b"\n".join(map(orjson.dumps, late))
        status = "expired" if late else "completed"
        files = {"output_file_id": f"out-{batch.id}", "error_file_id": f"err-{batch.id}" if late else None}
        return {**shown, "status": status, **files}

    async def _content(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.match_info["id"]])

    async def _results(self, request: web.Request) -> web.Response:
        found = next(each for each in self.batches if each.id == request.match_info["id"])
        return web.Response(body=b"\n".join(map(orjson.dumps, found.answers or ())))
