"""Requests in batches, at half the price: what many samples wait for is submitted together, and outlives the process.

Each batch is three files in the run's folder: its requests, written before anything is sent; its state, with the id
that the provider gave it; and its answers. A resumed run waits for the batches that are open, reads the answers that
are there, and submits only what is in none of them. Where the reply to a submission is lost, the provider's list of
batches shows whether it arrived.

The first request of a session goes out alone, at the full price: it shows what the endpoint supports.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit, urlunsplit

import orjson

from evenhand.core import events
from evenhand.core.aio import cancelled
from evenhand.core.errors import EndpointError, ModelError
from evenhand.core.files import draft, lines, write_bytes
from evenhand.core.http import Client, RefusedError, Reply, Retryable
from evenhand.core.types import Message, Params, mapping
from evenhand.models.base import Model, WrappedModel
from evenhand.models.request import model_identity, request_key

T = TypeVar("T")

QUIET = 3.0
"""Seconds without a new request or a live call after which those that wait are submitted."""
POLL, LONGEST_POLL = 5.0, 60.0
"""Seconds between two looks at an open batch, at first and at most."""
_SKEW = 600.0
"""Seconds by which the provider's clock may differ from ours."""
_EXPIRED = 408
_ID = re.compile(r"[\w-]{1,200}")


class Batch:
    """The files of one batch."""

    def __init__(self, requests: Path) -> None:
        self.requests = requests
        self.answers = requests.with_suffix(".answers.jsonl")
        self._file = requests.with_suffix(".state.json")
        self.state: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            self.state = orjson.loads(self._file.read_bytes())

    @property
    def id(self) -> str:
        """The provider's id; it becomes part of an address, and a stored run may be a stranger's."""
        if not _ID.fullmatch(found := str(self.state["id"])):
            raise EndpointError(f"{self._file} holds no usable id of a batch.", permanent=True)
        return found

    @property
    def is_over(self) -> bool:
        return bool(self.state.get("over"))

    def save(self, **state: Any) -> None:
        self.state |= state
        write_bytes(self._file, orjson.dumps(self.state), durable=True)

    def ids(self) -> list[str]:
        return [orjson.loads(line)["custom_id"] for line in _rows(self.requests)]


def _rows(path: Path) -> Iterator[bytes]:
    return (line for _, line in lines(path) if line.strip())


class BatchRefusedError(EndpointError):
    """The provider answered none of a batch's requests, and says why."""


class TooManyError(BatchRefusedError):
    """The account may not have as many requests open."""


class BatchApi(ABC):
    """How a provider takes batches; `client` has its address and key."""

    most = 50_000
    largest = 190 * 2**20
    """Requests, and bytes, of one batch."""
    live = True
    """Whether single requests can be sent, too."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def line(self, custom_id: str, body: bytes) -> bytes:
        """Return a request as a line of the batch's file; `body` is what would be sent alone."""
        made = {"custom_id": custom_id, "method": "POST", "url": urlsplit(self.client.url).path}
        return orjson.dumps({**made, "body": orjson.Fragment(body)})

    @abstractmethod
    async def create(self, batch: Batch) -> str:
        """Submit a batch, once; return its id."""

    @abstractmethod
    async def find(self, batch: Batch) -> str | None:
        """Return the id of a batch whose submission was not answered, if it arrived."""

    @abstractmethod
    async def finished(self, batch: Batch) -> bool:
        """Return whether a batch has ended, and then store its answers; raise BatchRefusedError if it has none."""

    def answer(self, line: bytes) -> tuple[str, Reply]:
        """Return the id of a request and its reply, as if it had been sent alone."""
        row = orjson.loads(line)
        if response := row.get("response"):
            return row["custom_id"], Reply(response["status_code"], {}, orjson.dumps(response["body"]))
        code = mapping(row.get("error")).get("code")
        return row["custom_id"], Reply(_EXPIRED if code == "batch_expired" else 500, {}, orjson.dumps(row.get("error")))

    def beside(self, call: str, path: str) -> str:
        """Return the address of another call of the API; `call` is the end of the client's own."""
        parts = urlsplit(self.client.url)
        return urlunsplit(parts._replace(path=parts.path.removesuffix(call) + path))

    async def json(self, method: str, url: str, body: Any = None, *, once: bool = False) -> Any:
        data = None if body is None else orjson.dumps(body)
        try:
            return orjson.loads(await self.client.call(method, url, data, once=once))
        except ValueError as error:
            raise EndpointError(f"{self.client.title} did not answer with JSON at {url}.") from error


class OpenAIBatches(BatchApi):
    """OpenAI's: a file of requests, a batch that names it, and one or two files of answers."""

    def _url(self, path: str) -> str:
        return self.beside("/chat/completions", path)

    async def create(self, batch: Batch) -> str:
        mark = uuid.uuid4().hex
        form = (
            f'--{mark}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{batch.requests.name}"\r\n'
            "Content-Type: application/jsonl\r\n\r\n"
        ).encode()
        data = form + batch.requests.read_bytes() + f"\r\n--{mark}--\r\n".encode()
        kind = f"multipart/form-data; boundary={mark}"
        file = orjson.loads(await self.client.call("POST", self._url("/files"), data, kind))["id"]
        body = {
            "input_file_id": file,
            "endpoint": urlsplit(self.client.url).path,
            "completion_window": "24h",
            "metadata": {"evenhand": batch.state["name"]},
        }
        return (await self.json("POST", self._url("/batches"), body, once=True))["id"]

    async def find(self, batch: Batch) -> str | None:
        for each in (await self.json("GET", self._url("/batches?limit=100")))["data"]:
            if mapping(each.get("metadata")).get("evenhand") == batch.state["name"]:
                return each["id"]
        return None

    async def finished(self, batch: Batch) -> bool:
        found = await self.json("GET", self._url(f"/batches/{batch.id}"))
        if found["status"] in ("validating", "in_progress", "finalizing", "cancelling"):
            return False
        files = [found[name] for name in ("output_file_id", "error_file_id") if found.get(name)]
        if found["status"] == "failed" and not files:
            fault = mapping(next(iter(mapping(found.get("errors")).get("data") or ()), None))
            said = self.client.redact(str(fault.get("message") or "it gives no reason"))[:300]
            kind = TooManyError if fault.get("code") == "token_limit_exceeded" else BatchRefusedError
            raise kind(f"{self.client.title} refused the batch {batch.id}: {said}", permanent=True)
        with draft(batch.answers, durable=True) as path, path.open("wb") as into:
            for file in files:
                await self.client.call("GET", self._url(f"/files/{file}/content"), into=into)
                into.write(b"\n")
        return True


class AnthropicBatches(BatchApi):
    """Anthropic's: the requests in one body, and one stream of answers. A batch has no name there, only a time."""

    most = 100_000

    def _url(self, path: str) -> str:
        return self.beside("/messages", f"/messages/batches{path}")

    def line(self, custom_id: str, body: bytes) -> bytes:
        return orjson.dumps({"custom_id": custom_id, "params": orjson.Fragment(body)})

    async def create(self, batch: Batch) -> str:
        requests = [orjson.Fragment(line) for line in _rows(batch.requests)]
        return (await self.json("POST", self._url(""), {"requests": requests}, once=True))["id"]

    async def find(self, batch: Batch) -> str | None:
        # A batch of as many requests, since we began to submit this one. Answers to others' requests are not read, so a
        # mistake costs time, not truth.
        wanted = len(batch.ids())
        for each in reversed((await self.json("GET", self._url("?limit=100")))["data"]):
            created = datetime.fromisoformat(each["created_at"]).timestamp()
            if created > batch.state["began"] - _SKEW and sum(each["request_counts"].values()) == wanted:
                return each["id"]
        return None

    async def finished(self, batch: Batch) -> bool:
        found = await self.json("GET", self._url(f"/{batch.id}"))
        if found["processing_status"] != "ended":
            return False
        with draft(batch.answers, durable=True) as path, path.open("wb") as into:
            # Not at the address that the reply names: it could be another host, which must not get the key.
            await self.client.call("GET", self._url(f"/{batch.id}/results"), into=into)
        return True

    def answer(self, line: bytes) -> tuple[str, Reply]:
        row = orjson.loads(line)
        match row["result"]:
            case {"type": "succeeded", "message": message}:
                return row["custom_id"], Reply(200, {}, orjson.dumps(message))
            case {"type": "errored", "error": error}:
                kind = (error.get("error") or error).get("type")
                statuses = {"invalid_request_error": 400, "authentication_error": 401, "not_found_error": 404}
                return row["custom_id"], Reply(statuses.get(kind, 500), {}, orjson.dumps(error))
            case _:
                return row["custom_id"], Reply(_EXPIRED, {}, b"the batch expired")


class FileQueue(BatchApi):
    """Any endpoint: somebody else reads the file of requests and writes the one of answers, in OpenAI's format."""

    live = False

    async def create(self, batch: Batch) -> str:
        return batch.state["name"]

    async def find(self, batch: Batch) -> str | None:
        return batch.state["name"]

    async def finished(self, batch: Batch) -> bool:
        if not batch.answers.exists():
            return False
        with suppress(ValueError, KeyError):  # somebody is writing its last line
            return {self.answer(line)[0] for line in _rows(batch.answers)} >= {*batch.ids()}
        return False


@dataclass(slots=True)
class _Box:
    """The answers to one request, of which there may be several: those that came, and who waits for more."""

    ready: deque[tuple[Path, int, int]] = field(default_factory=deque[tuple[Path, int, int]])
    """File, place and length of answers that nobody has asked for in this session."""
    waiting: deque[asyncio.Future[Reply]] = field(default_factory=deque[asyncio.Future[Reply]])
    promised: int = 0
    """Answers of open batches that nobody waits for yet."""


class Batches:
    """The batches of one model in one run."""

    def __init__(self, folder: Path, api: BatchApi, model: Model, retries: int, *, cached: bool) -> None:
        """`cached`: equal requests of several samples share an answer; otherwise each sample has its own."""
        self.api = api
        self._folder = folder
        self._model = model
        self._retries = retries
        self._identity = model_identity(model.fingerprint())
        self._cached = cached
        self._boxes: dict[str, _Box] = {}
        self._queue: deque[tuple[str, Callable[[], bytes]]] = deque()
        self._latest = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._submitting = self._probing = False
        self._probed = not api.live
        self._most = api.most
        self._open: list[Batch] = []
        self._load()

    def _load(self) -> None:
        """Take up the batches of earlier sessions."""
        for path in sorted(self._folder.glob("*.requests.jsonl")):
            batch = Batch(path)
            if batch.state.get("failed") or not batch.state:
                continue  # one without a state was never submitted
            self._model.recall(batch.state.get("learned", {}))
            if batch.is_over:
                for key, reply, place in self._answers(batch):
                    if reply.status < _EXPIRED:
                        self._box(key).ready.append(place)
                continue
            for each in batch.ids():
                self._box(_key(each)).promised += 1
            self._open.append(batch)

    async def post(
        self, messages: Sequence[Message], params: Params, body: Callable[[], bytes], read: Callable[[Reply], T]
    ) -> tuple[T, int]:
        """As `Client.post`; the reply may take hours. Failed requests go into the next batch."""
        for batch in [] if self._tasks else [*self._open]:
            self._begin(self._followed(batch))
        place = "" if self._cached else orjson.dumps([events.place().get(name) for name in ("arm", "sample")]).decode()
        key = request_key(self._identity + place.encode(), messages, params).hex()[:48]
        failures = 0
        while True:
            box = self._boxes.get(key)
            if not self._probed and not self._probing and not (box and (box.ready or box.promised)):
                self._probing = True
                try:
                    found = await self.api.client.post(body, read)
                    self._probed = True
                    return found
                finally:
                    self._probing = False
            try:
                return read(await self._reply(key, body)), failures
            except Retryable as fault:
                failures += 1
                if failures > min(self._retries, fault.max_retries):
                    raise fault.error from fault
                events.retried(str(fault.error), 0.0)
                await events.repeated(fault.error)

    async def _reply(self, key: str, body: Callable[[], bytes]) -> Reply:
        box = self._box(key)
        if box.ready:
            body()  # so that the caller knows what it would have sent
            path, start, length = box.ready.popleft()
            with path.open("rb") as file:
                file.seek(start)
                return self.api.answer(file.read(length))[1]
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        box.waiting.append(future)
        if box.promised:
            box.promised -= 1
            body()
        else:
            self._queue.append((key, body))
            self._latest = time.monotonic()
            if not self._submitting:
                self._submitting = True
                self._begin(self._submitted())
        with events.holding():
            return await future

    async def _submitted(self) -> None:
        """Submit what waits, once nothing else is under way."""
        try:
            while self._queue:
                limited = self._most < self.api.most and bool(self._open)
                if limited or events.live_calls() or time.monotonic() - self._latest < QUIET:
                    await asyncio.sleep(QUIET / 4)
                    continue
                batch = self._written()
                self._open.append(batch)
                self._begin(self._followed(batch))
        finally:
            self._submitting = False

    def _written(self) -> Batch:
        """Write the next batch to its files."""
        self._folder.mkdir(parents=True, exist_ok=True)
        number = 1 + len([*self._folder.glob("*.requests.jsonl")])
        batch = Batch(self._folder / f"{number:04d}.requests.jsonl")
        rows: list[bytes] = []
        size = 0
        counts: dict[str, int] = {}
        while self._queue and len(rows) < self._most and size < self.api.largest:
            key, body = self._queue.popleft()
            counts[key] = counts.get(key, 0) + 1
            rows.append(self.api.line(f"{key}-{counts[key]}", body()))
            size += len(rows[-1])
        write_bytes(batch.requests, b"\n".join(rows) + b"\n", durable=True)
        # What the endpoint was found to support decides which requests a resumed run makes.
        batch.save(name=uuid.uuid4().hex, began=time.time(), id=None, learned=dict(self._model.learned()))
        return batch

    async def _followed(self, batch: Batch) -> None:
        """Submit a batch if that was not done, wait for its end and hand out its answers."""
        try:
            await self._over(batch)
            for key, reply, place in self._answers(batch):
                self._deliver(key, reply, place)
            events.event("batch", f"the batch {batch.id} has ended", batch=batch.id)
        except Exception as error:  # the samples that wait must learn of any fault
            # A batch that was taken stays open whatever fails here, e.g. the key: a resumed run asks for it again.
            lasting = not isinstance(error, EndpointError) or isinstance(error, RefusedError) or error.permanent
            if isinstance(error, BatchRefusedError) or (lasting and not batch.state.get("id")):
                batch.save(failed=str(error))
            if isinstance(error, TooManyError) and self._most > 1:
                self._halve(batch)
                return
            told = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            unread = EndpointError(
                f"{self.api.client.title} answered about a batch in another way than its API: {told}."
            )
            fault = error if isinstance(error, ModelError) else unread
            for each in batch.ids():
                self._deliver(_key(each), fault)
        finally:
            self._open = [each for each in self._open if each is not batch]

    async def _over(self, batch: Batch) -> None:
        """Return when the answers of a batch are stored."""
        wait = POLL
        while not batch.is_over:
            try:
                if not batch.state.get("id"):
                    arrived = await self.api.find(batch) if batch.state.get("asked") else None
                    batch.save(asked=True)
                    batch.save(id=arrived or await self.api.create(batch))
                    text = f"the batch {batch.id} with {len(batch.ids()):,} requests is open: {batch.requests}"
                    events.event("batch", text, batch=batch.id)
                if await self.api.finished(batch):
                    batch.save(over=True)
                    return
            except EndpointError as error:
                # What passes is waited for, also while the provider is down for hours; not if it has never worked and
                # took nothing.
                never = not self.api.client.worked and not batch.state.get("id")
                if never or isinstance(error, RefusedError) or error.permanent:
                    raise
            await asyncio.sleep(wait)
            wait = min(LONGEST_POLL, wait * 1.5)

    def _halve(self, batch: Batch) -> None:
        """Queue the requests of a batch again, in smaller ones: the account may have only so many open."""
        self._most = max(1, min(self._most, len(batch.ids())) // 2)
        for line in _rows(batch.requests):
            row = orjson.loads(line)
            body = orjson.dumps(row.get("body") or row["params"])
            self._queue.append((_key(row["custom_id"]), lambda body=body: body))
        if not self._submitting:
            self._submitting = True
            self._begin(self._submitted())

    def _answers(self, batch: Batch) -> Iterator[tuple[str, Reply, tuple[Path, int, int]]]:
        """Yield key, reply and place of every answer, and a reply that asks for another attempt where there is none."""
        missing = set(batch.ids())
        with batch.answers.open("rb") as file:
            start = 0
            for line in file:
                if line.strip():
                    name, reply = self.api.answer(line)
                    if name in missing:
                        missing.remove(name)
                        yield _key(name), reply, (batch.answers, start, len(line))
                start += len(line)
        for name in sorted(missing):
            yield _key(name), Reply(_EXPIRED, {}, b"the batch ended without it"), (batch.answers, 0, 0)

    def _deliver(self, key: str, reply: Reply | ModelError, place: tuple[Path, int, int] | None = None) -> None:
        box = self._box(key)
        while box.waiting:
            future = box.waiting.popleft()
            if future.done():
                continue
            if isinstance(reply, ModelError):
                future.set_exception(reply)
            else:
                future.set_result(reply)
            break
        else:
            box.promised = max(0, box.promised - 1)
            if place is not None and isinstance(reply, Reply) and reply.status < _EXPIRED:
                box.ready.append(place)
        if not (box.waiting or box.promised or box.ready):
            self._boxes.pop(key, None)

    def _box(self, key: str) -> _Box:
        return self._boxes.setdefault(key, _Box())

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Stop waiting; open batches stay open."""
        await cancelled(self._tasks)


def _key(custom_id: str) -> str:
    return custom_id.rpartition("-")[0]


class BatchingModel(Model):
    """A model behind an endpoint whose requests can go into batches."""

    client: Client
    batch_api: ClassVar[type[BatchApi] | None] = None
    batches: Batches | None = None

    async def post(
        self, messages: Sequence[Message], params: Params, body: Callable[[], bytes], read: Callable[[Reply], T]
    ) -> tuple[T, int]:
        """Send a request, alone or in a batch."""
        if self.batches is None:
            return await self.client.post(body, read)
        return await self.batches.post(messages, params, body, read)

    async def aclose(self) -> None:
        if self.batches is not None:
            await self.batches.aclose()
        await self.client.aclose()


def in_batches(model: Model, folder: Path, *, queue: bool, cached: bool, retries: int) -> None:
    """Make a model send its requests in batches, if it can."""
    inner = model
    while isinstance(inner, WrappedModel):
        inner = inner.inner
    kind = FileQueue if queue else getattr(inner, "batch_api", None)
    if kind is None or not isinstance(inner, BatchingModel):
        return
    name = re.sub(r"[^\w.-]+", "-", model.spec)
    place = folder / f"{name}-{model_identity(model.fingerprint()).hex()[:8]}"
    inner.queued = queue
    inner.batches = Batches(place, kind(inner.client), model, retries, cached=cached)
