"""The guard server next to calling the model directly, and under strain: `python bench/serve.py [PART …]`.

overhead: what a pass-through route adds at 100 clients, next to a bare proxy of the same framework. guard: what
checks add at 200 and 20 clients with one and two workers, whole and streamed, and beside an answer of 1 MB. litellm:
the same checks next to LiteLLM's proxy with a guardrail that does nothing (`LITELLM_PYTHON` is the Python that has
`litellm[proxy]`). scorers: the CPU of a checked answer by scorer, on paragraphs of our docs as answers. stream: the
first checked words of a stream. strain: 1,000 clients for ten minutes (`--seconds` for less), errors and memory.
chaos: an endpoint that fails in all ways. end: kill -TERM under load. attacks: /healthz beside hostile requests and
replies. The server, the endpoint, the proxy and the clients are processes of their own on the same cores: trust the
ratios. Numbers are kept in results/serve.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import HERE, RESULTS, best, save, stub, table, verdict

PARTS = ("overhead", "guard", "scorers", "litellm", "stream", "strain", "chaos", "end", "attacks")
BARE = {"method": "default", "policy": "flag", "evaluators": []}
GUARDED = {"method": "stardtox:performance=false,scorer=builtin"}
SCORERS = ("builtin", "cascade", "neural")
LATENCY, CLIENTS, ROUNDS, TURN_SECONDS = 0.2, 100, 3, 8.0
GUARD_LATENCY, GUARD_CLIENTS, FEW_CLIENTS, GUARD_SECONDS = 0.05, 200, 20, 4.0
PAUSE = 0.05
"""Seconds at most between an answer and a client's next request, where latency is measured."""


@contextlib.contextmanager
def server(upstream: str, route: dict[str, Any], *arguments: str, **config: Any) -> Iterator[tuple[str, int]]:
    """A guard server with one route; its base URL and process id."""
    with tempfile.TemporaryDirectory(prefix="evenhand-bench-") as folder:
        file = Path(folder) / "guard.yaml"
        one = {"model": "openai/stub", "base_url": upstream, "retries": 0, **route}
        file.write_text(json.dumps({"routes": {"bench": one}, "log": {"requests": False}, **config}))
        with started(file, *arguments) as found:
            yield found


@contextlib.contextmanager
def started(file: Path, *arguments: str) -> Iterator[tuple[str, int]]:
    """A guard server with this config; its base URL and process id."""
    command = [sys.executable, "-m", "evenhand", "serve", "--config", str(file), "--port", "0", *arguments]
    with subprocess.Popen(
        command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+/v1", process.stdout.readline())
        assert found, "the server did not start"
        try:
            yield found.group(), process.pid
        finally:
            process.terminate()
            process.wait(90)


@contextlib.contextmanager
def proxy(upstream: str) -> Iterator[tuple[str, int]]:
    command = [sys.executable, str(HERE / "serve_proxy.py"), upstream]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1", process.pid
        finally:
            process.kill()


def loaded(url: str, **options: Any) -> dict[str, Any]:
    """What the clients saw."""
    return json.loads(_clients(url, **options).communicate()[0].splitlines()[-1])


def _clients(url: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "serve_load.py"), json.dumps({"url": url, **options})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def overhead() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with stub(LATENCY) as slow, stub() as fast:
        for name, upstream, pause in (("latency", slow, PAUSE), ("bursts", slow, 0.0), ("throughput", fast, 0.0)):
            with (
                proxy(upstream) as bare,
                server(upstream, BARE) as passing,
                server(upstream, GUARDED) as guarded,
                server(upstream, BARE, "--workers", "2") as (double, _),
            ):
                places = {"direct": (upstream, 0), "bare proxy": bare, "pass-through": passing, "guarded": guarded}
                found[name] = _in_turn(pause, places | {"pass-through, 2 workers": (double, 0)})
    direct, together = (found[name]["direct"]["p50_ms"] for name in ("latency", "bursts"))
    rows = [
        (
            *(name, one["p50_ms"], one["p50_ms"] - direct, burst["p50_ms"] - together, one["p99_ms"], one["rps"]),
            *(fast["rps"], fast["cpu_ms"] or ""),
        )
        for (name, one), burst, fast in zip(
            found["latency"].items(), found["bursts"].values(), found["throughput"].values(), strict=True
        )
    ]
    added = found["latency"]["pass-through"]["p50_ms"] - direct
    ratio = found["throughput"]["pass-through"]["rps"] / found["throughput"]["bare proxy"]["rps"]
    table(
        f"{CLIENTS} clients, an endpoint that takes {1000 * LATENCY:.0f} ms; the last columns: one that takes no time",
        ("", "p50 ms", "added", "in bursts", "p99 ms", "requests/s", "requests/s", "CPU ms/request"),
        rows,
        f"added at p50: {added:.2f} ms, {verdict(added, 2)}; throughput {ratio:.2f} × the bare proxy's",
    )
    return {**found, "added_p50_ms": added, "throughput_ratio": ratio}


def _in_turn(pause: float, places: dict[str, tuple[str, int]]) -> dict[str, Any]:
    """Each in turn, several times over, so that all see the same machine; the median of the turns."""
    turns = [{name: _turn(*place, pause=pause) for name, place in places.items()} for _ in range(ROUNDS)]
    keys = ("p50_ms", "p99_ms", "rps", "cpu_ms", "invalid")
    return {name: {key: statistics.median(turn[name][key] for turn in turns) for key in keys} for name in places}


def _turn(url: str, pid: int, **options: Any) -> dict[str, Any]:
    before = cpu(pid)
    seen = loaded(url, **{"clients": CLIENTS, "seconds": TURN_SECONDS, **options})
    return {**seen, "cpu_ms": 1000 * (cpu(pid) - before) / max(1, seen["requests"])}


def guard() -> dict[str, Any]:
    """What the checks of a guarded route add; the least disturbed of several short turns counts."""
    found: dict[str, Any] = {}
    with (
        stub(GUARD_LATENCY, "serve_guard_stub.py") as upstream,
        proxy(upstream) as bare,
        server(upstream, BARE) as passing,
        server(upstream, GUARDED) as one,
        server(upstream, GUARDED, "--workers", "2") as two,
    ):
        checked = {"1 worker": one, "2 workers": two}
        floor = {"direct": (upstream, 0), "bare proxy": bare, "pass-through": passing}
        places = {"direct": (upstream, 0), **checked}
        found["whole"] = _least(floor | checked, clients=GUARD_CLIENTS)
        found["streamed"] = _least(places, clients=GUARD_CLIENTS, stream=True)
        found["few"] = _least(places, clients=FEW_CLIENTS)
        del places["2 workers"]
        found["ordinary"] = _least(places, clients=50, pause=PAUSE, health=True)
        found["beside 1 MB"] = _least(places, clients=50, pause=PAUSE, health=True, long=1)
    for name, clients in (("whole", GUARD_CLIENTS), ("streamed", GUARD_CLIENTS), ("few", FEW_CLIENTS)):
        seen, key = found[name], "first_ms" if name == "streamed" else "p50_ms"
        direct, workers = seen["direct"], seen["2 workers"]["rps"] / seen["1 worker"]["rps"]
        added, cost = seen["2 workers"][key] - direct[key], seen["1 worker"]["cpu_ms"]
        table(
            f"{clients} clients without pauses, an endpoint that takes {1000 * GUARD_LATENCY:.0f} ms, answers "
            f"{'streamed' if name == 'streamed' else 'whole'}",
            ("", "p50 ms", "× direct", "p99 ms", "first words ms", "× direct", "requests/s", "CPU ms/request"),
            [
                (
                    *(place, each["p50_ms"], each["p50_ms"] / direct["p50_ms"], each["p99_ms"], each["first_ms"]),
                    *(each["first_ms"] / direct["first_ms"] if direct["first_ms"] else "", each["rps"]),
                    each["cpu_ms"] or "",
                )
                for place, each in seen.items()
            ],
            f"CPU: {cost:.2f} ms, {verdict(cost, 0.8)}; two workers add {added:.0f} ms, {verdict(added, 60)}; "
            f"they give {workers:.2f} × the requests/s, {verdict(workers, 1.7, least=True)}",
        )
    rows = [
        (f"{place}, {name}", *(each["p50_ms"], each["p99_ms"], each["health"]["p99_ms"], each["health"]["most_ms"]))
        for name in ("ordinary", "beside 1 MB")
        for place, each in found[name].items()
    ]
    most = found["beside 1 MB"]["1 worker"]["health"]["p99_ms"]
    table(
        "50 clients with pauses, alone and beside one that streams answers of 1 MB",
        ("", "p50 ms", "p99 ms", "/healthz p99 ms", "most ms"),
        rows,
        f"/healthz at p99: {most:.0f} ms, {verdict(most, 50)}",
    )
    return found


def scorers() -> dict[str, Any]:
    """What a checked answer costs by scorer."""
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(stub(GUARD_LATENCY, "serve_guard_stub.py"))
        places = {
            name: stack.enter_context(server(upstream, {"method": f"stardtox:performance=false,scorer={name}"}))
            for name in SCORERS
        }
        found = _least(places, clients=4, vary=True)
    base = found["builtin"]["cpu_ms"]
    table(
        "4 clients, answers of 200 to 800 characters, one worker each",
        ("", "p50 ms", "p99 ms", "requests/s", "CPU ms/request", "× builtin"),
        [
            (name, each["p50_ms"], each["p99_ms"], each["rps"], each["cpu_ms"], each["cpu_ms"] / base)
            for name, each in found.items()
        ],
        f"neural: {verdict(found['neural']['cpu_ms'] / base, 1.5)}",
    )
    return found


NOTHING = """from litellm.integrations.custom_guardrail import CustomGuardrail


class Nothing(CustomGuardrail):
    async def async_post_call_success_hook(self, data, user_api_key_dict, response):
        return response
"""


@contextlib.contextmanager
def litellm_proxy(upstream: str) -> Iterator[tuple[str, int]]:
    """LiteLLM's proxy with one worker and a guardrail that does nothing; its base URL and process id."""
    python = Path(os.environ.get("LITELLM_PYTHON", sys.executable))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="evenhand-bench-") as folder:
        config = {
            "model_list": [
                {
                    "model_name": "bench",
                    "litellm_params": {"model": "openai/stub", "api_base": upstream, "api_key": "x"},
                }
            ],
            "guardrails": [
                {
                    "guardrail_name": "nothing",
                    "litellm_params": {"guardrail": "nothing.Nothing", "mode": "post_call", "default_on": True},
                }
            ],
        }
        (Path(folder) / "nothing.py").write_text(NOTHING)
        (Path(folder) / "config.yaml").write_text(json.dumps(config))
        command = [str(python.with_name("litellm")), "--config", "config.yaml", "--host", "127.0.0.1", "--port", port]
        # A log line for each request would be most of the work. Our server has no keys in this test either.
        quiet = {
            **os.environ,
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }
        quiet.pop("PYTHONPATH", None)
        with subprocess.Popen(
            command, cwd=folder, env=quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                _wait_for(f"http://127.0.0.1:{port}/health/liveliness", process)
                yield f"http://127.0.0.1:{port}/v1", process.pid
            finally:
                process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes], seconds: float = 180.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit("LiteLLM's proxy did not start; is litellm[proxy] installed for LITELLM_PYTHON?")
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(url, timeout=5)
            return
        time.sleep(0.5)
    raise SystemExit(f"LiteLLM's proxy was not ready after {seconds:.0f} s.")


def litellm() -> dict[str, Any]:
    """Requests per second of CPU with our checks, next to LiteLLM's proxy with a guardrail that does nothing."""
    with (
        stub(GUARD_LATENCY, "serve_guard_stub.py") as upstream,
        server(upstream, GUARDED) as ours,
        litellm_proxy(upstream) as theirs,
    ):
        seen = _least({"direct": (upstream, 0), "ours, toxicity checked": ours, "LiteLLM, nothing": theirs}, clients=50)
    ratio = seen["LiteLLM, nothing"]["cpu_ms"] / seen["ours, toxicity checked"]["cpu_ms"]
    table(
        f"50 clients, an endpoint that takes {1000 * GUARD_LATENCY:.0f} ms, whole answers, one worker each",
        ("", "p50 ms", "p99 ms", "requests/s", "CPU ms/request"),
        [(place, each["p50_ms"], each["p99_ms"], each["rps"], each["cpu_ms"] or "") for place, each in seen.items()],
        f"requests per second of CPU: {ratio:.1f} × LiteLLM's, {verdict(ratio, 5, least=True)}",
    )
    return seen


def _least(places: dict[str, tuple[str, int]], **options: Any) -> dict[str, Any]:
    turns = [
        {name: _turn(*place, seconds=GUARD_SECONDS, **options) for name, place in places.items()} for _ in range(ROUNDS)
    ]
    return {name: best([turn[name] for turn in turns], "p50_ms") for name in places}


def stream() -> dict[str, Any]:
    """When the first words come: a guard holds them until their sentence is whole and has passed."""
    found: dict[str, Any] = {}
    script = [sys.executable, str(HERE / "serve_stream.py")]
    with subprocess.Popen([*script, "stub"], stdout=subprocess.PIPE, text=True) as endpoint:
        assert endpoint.stdout is not None
        try:
            upstream = f"http://127.0.0.1:{int(endpoint.stdout.readline())}/v1"
            with server(upstream, BARE) as (passing, _), server(upstream, GUARDED) as (guarded, _):
                for name, url in (("direct", upstream), ("pass-through", passing), ("guarded", guarded)):
                    found[name] = json.loads(subprocess.check_output([*script, url]))
        finally:
            endpoint.kill()
    table(
        "50 streams at once, a word every 20 ms, sentences of 11 words",
        ("", "first words ms", "whole answer ms"),
        [(name, one["first_ms"], one["whole_ms"]) for name, one in found.items()],
    )
    return found


def strain(seconds: float) -> dict[str, Any]:
    """1,000 clients; memory is read on the way."""
    with stub(LATENCY) as upstream, server(upstream, GUARDED) as (url, pid):
        clients = _clients(url, clients=1000, seconds=seconds)
        began, memory = time.perf_counter(), [(0.0, rss(pid))]
        while clients.poll() is None:
            time.sleep(min(10.0, seconds / 20))
            memory.append((time.perf_counter() - began, rss(pid)))
        assert clients.stdout is not None
        seen = json.loads(clients.stdout.read().splitlines()[-1])
    # The first fifth is the warm-up: connections, buffers, the page's ring of requests.
    steady = [mb for at, mb in memory if at >= seconds / 5]
    growth = steady[-1] / steady[0] - 1
    errors = seen["requests"] - seen["statuses"].get("200", 0) + seen["lost"] + seen["refused"]
    shown = memory[:: max(1, len(memory) // 10)]
    table(
        f"1,000 clients for {seconds:.0f} s, an endpoint that takes {1000 * LATENCY:.0f} ms",
        ("second", "memory MB"),
        [(f"{at:.0f}", mb) for at, mb in shown],
        f"{seen['requests']:,} requests, {seen['rps']:.0f}/s, p50 {seen['p50_ms']:.0f} ms, "
        f"p99 {seen['p99_ms']:.0f} ms; {errors} errors; memory {100 * growth:+.1f} % after the warm-up",
    )
    return {**seen, "errors": errors, "memory": memory, "growth": growth}


def chaos() -> dict[str, Any]:
    found = {}
    for name, route in (
        ("pass-through", BARE),
        ("guarded", GUARDED),
        ("guarded, 2 retries", {**GUARDED, "retries": 2}),
    ):
        with stub(0.01, "serve_chaos_stub.py") as upstream, server(upstream, route) as (url, _):
            found[name] = loaded(url, clients=CLIENTS, seconds=TURN_SECONDS)
    table(
        "An endpoint that fails three times in ten; invalid: neither a completion nor an error in OpenAI's form",
        ("", "requests", "invalid", "lost", "by status"),
        [
            (
                name,
                one["requests"],
                one["invalid"],
                one["lost"],
                " ".join(f"{k}:{v}" for k, v in one["statuses"].items()),
            )
            for name, one in found.items()
        ],
    )
    return found


def end() -> dict[str, Any]:
    found = {}
    for name, arguments in (("one process", ()), ("2 workers", ("--workers", "2"))):
        with stub(LATENCY) as upstream, server(upstream, GUARDED, *arguments) as (url, pid):
            found[name] = loaded(url, clients=200, seconds=6, end_pid=pid, end_after=3)
    table(
        "kill -TERM under the load of 200 clients",
        ("", "requests", "in flight then", "of them lost", "later: 503", "later: refused", "invalid"),
        [
            (
                name,
                one["requests"],
                one["in_flight_at_end"],
                one["lost_in_flight"],
                one["statuses"].get("503", 0),
                one["refused"],
                one["invalid"],
            )
            for name, one in found.items()
        ],
    )
    return found


def rss(pid: int) -> float:
    """Memory of a process in MB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+) kB", text)
    return int(found.group(1)) / 1024 if found else 0.0


def cpu(pid: int) -> float:
    """Seconds of CPU that a process and its workers have used; 0 for none."""
    if not pid:
        return 0.0
    workers = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return sum(map(_cpu, [pid, *map(int, workers)]))


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}


HEALTHY_MS = 100
"""The aim for /healthz beside an attack."""


def attacks() -> dict[str, Any]:
    """How long /healthz takes beside each attack, at most and at p99, next to an idle server."""
    empty = b'{"model": "bench", "messages": [' + b"[]," * 3_200_000 + b"[]]}"

    def asked(text: str, **fields: Any) -> bytes:
        return json.dumps({"model": "bench", "messages": [{"role": "user", "content": text}], **fields}).encode()

    attempts: dict[str, list[bytes]] = {
        "nothing": [],
        "a request of 9.6 MB of []": [empty],
        "eight of them": [empty] * 8,
        "a reply of 30 MB of {},": [asked("VALUES")],
        "a stream of 100,000 tool arguments": [asked("PIECES 100000", stream=True)],
        "a stream of 330,000 tool arguments": [asked("PIECES 330000", stream=True)],
    }
    found: dict[str, Any] = {}
    with stub(0.0, "serve_attack_stub.py") as upstream, server(upstream, GUARDED) as (url, _):
        for name, bodies in attempts.items():
            found[name] = _health_beside(url, bodies)
    most = max(each["most_ms"] for each in found.values())
    table(
        "/healthz beside attacks",
        ("", "p99 ms", "most ms", "looks", "statuses"),
        [
            (name, each["p99_ms"], each["most_ms"], each["looks"], " ".join(map(str, each["statuses"])))
            for name, each in found.items()
        ],
        f"at most {most:.0f} ms, {verdict(most, HEALTHY_MS)}",
    )
    return found


def _health_beside(url: str, bodies: list[bytes], seconds: float = 3.0) -> dict[str, Any]:
    """Look at /healthz again and again while these requests are sent, and for some seconds at least."""
    root = url.removesuffix("/v1")

    def send(body: bytes) -> int:
        asked = urllib.request.Request(f"{url}/chat/completions", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=600) as answer:
                answer.read()
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    took: list[float] = []
    with ThreadPoolExecutor(max(1, len(bodies))) as pool:
        sent = [pool.submit(send, body) for body in bodies]
        end = time.monotonic() + seconds
        while time.monotonic() < end or not all(each.done() for each in sent):
            began = time.perf_counter()
            urllib.request.urlopen(f"{root}/healthz", timeout=600).read()
            took.append(1000 * (time.perf_counter() - began))
            time.sleep(0.005)
    took.sort()
    p99 = took[int(0.99 * (len(took) - 1))]
    statuses = sorted({each.result() for each in sent})
    return {"p99_ms": p99, "most_ms": took[-1], "looks": len(took), "statuses": statuses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=600.0, help="of the strain (default 600)")
    given = parser.parse_args()
    if unknown := [part for part in given.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    print(f"Load on this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; trust the ratios.")
    kept = RESULTS / "serve.json"
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for part in given.parts or PARTS:
        found[part] = strain(given.seconds) if part == "strain" else globals()[part]()
    save("serve", found)


if __name__ == "__main__":
    main()
