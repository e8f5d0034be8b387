"""MABRF on 100 questions with 200 ms per call, next to the loop of a notebook that makes the same calls in turn.

The answers must be the same, item by item: the stub's replies depend on every word of a request, so one word that
differed anywhere on the way would show. No client can be faster than the longest chain of calls that wait for each
other, nor than all calls shared out over the connections; that is the floor.
"""

from __future__ import annotations

from common import best, fresh, save, stub, table, verdict

SAMPLES, LATENCY, CONNECTIONS, REPEATS, TARGET = 100, 0.2, 64, 3, 30.0


def run() -> None:
    with stub(LATENCY, "mabrf_stub.py") as url:
        options = {"script": "mabrf_clients.py", "url": url, "samples": SAMPLES, "connections": CONNECTIONS}
        ours = [fresh("evenhand", **options) for _ in range(REPEATS)]
        loop = fresh("loop", **options)
    wanted = {sample: answer for sample, (answer, _) in loop["outcomes"].items()}
    for one in ours:
        assert {sample: answer for sample, (answer, _) in one["outcomes"].items()} == wanted, "answers differ"
        assert all(one["outcomes"][sample][1] <= calls for sample, (_, calls) in loop["outcomes"].items()), "more calls"
    chains = [calls for _, calls in loop["outcomes"].values()]
    floor = max(max(chains) * LATENCY, sum(chains) * LATENCY / CONNECTIONS)
    fastest = best(ours, "wall_s")
    ratios = [loop["wall_s"] / one["wall_s"] for one in ours]
    table(
        f"MABRF, {SAMPLES} questions, {1000 * LATENCY:.0f} ms per call, {CONNECTIONS} connections",
        ("client", "wall s", "calls", "× floor"),
        [
            ("loop", loop["wall_s"], sum(chains), loop["wall_s"] / floor),
            ("evenhand", fastest["wall_s"], _calls(fastest), fastest["wall_s"] / floor),
            ("floor", floor, sum(chains), 1.0),
        ],
        f"same answers: yes; {max(ratios):.1f} × faster ({', '.join(f'{each:.1f}' for each in ratios)}), "
        f"{verdict(max(ratios), TARGET, least=True)}",
    )
    told = ", ".join(f"{chains.count(length)} × {length}" for length in sorted(set(chains)))
    # The notebooks judge the final reasoning once more, and answer anew from one that nobody rewrote.
    notebooks = sum(chains) + SAMPLES + chains.count(2)
    print(f"  calls per question: {told}; a loop that always answers anew and judges once more: {notebooks}")
    walls = {"loop_s": loop["wall_s"], "evenhand_s": [one["wall_s"] for one in ours], "floor_s": floor}
    save("mabrf", {**walls, "ratios": ratios, "calls": sum(chains), "evenhand_calls": [_calls(one) for one in ours]})


def _calls(one: dict[str, dict[str, tuple[str, int]]]) -> int:
    return sum(calls for _, calls in one["outcomes"].values())
