"""The tables of `rldf_test.py`, and pairs of answers for people to rate without knowing whose they are."""

from __future__ import annotations

import csv
import json
import random
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.stats import Interval
from evenhand.stats.agreement import auc_interval
from evenhand.stats.distributions import student_t_quantile
from evenhand.stats.intervals import mean_interval

ARMS = {
    "base": "as it was",
    "sft": "SFT",
    "again": "SFT, trained again",
    "anew": "SFT, trained a third time",
    "rloo": "**RLDF** (RLOO)",
    "ppo": "RLDF (PPO)",
    "reading": "RL on reading A (positive control)",
    "shuffled": "reward model with shuffled labels (negative control)",
    "noise": "the same without worthless answers (second negative control)",
    "rlaif": "RLAIF",
    "remax-greedy": "ReMax as released (greedy)",
    "remax": "ReMax, sampled",
    "verifiable": "known answers",
}
PUBLISHED = -0.38
"""RLDF less SFT in the paper's Table 3: −3.8 of 100."""
BLIND = 40
SHORTEST = 20
"""Words; shorter texts count as this long where length is removed."""
Row = dict[str, Any]


def report(out: Path) -> str:
    """Return all tables of a test."""
    parts = (_instrument, _pairs, _ceiling, _arms, _differences, negative_control, _trainings)
    return "\n\n".join(text for part in parts for text in part(out))


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def job(out: Path, name: str) -> Row:
    path = out / "jobs" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def told(interval: Interval | None, digits: int = 2) -> str:
    if interval is None or interval.estimate is None:
        return "–"
    if interval.low is None or interval.high is None:
        return f"{interval.estimate:.{digits}f}"
    return f"{interval.estimate:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def by_topic(rows: Sequence[Row], value: Callable[[Row], float]) -> dict[str, float]:
    """Return topic → the mean of a value."""
    topics: dict[str, list[float]] = {}
    for row in rows:
        topics.setdefault(row["topic"], []).append(value(row))
    return {topic: statistics.fmean(values) for topic, values in topics.items()}


def clustered(rows: Sequence[Row], value: Callable[[Row], float]) -> Interval:
    return mean_interval(list(by_topic(rows, value).values()))


def length_curve(words: Sequence[int], values: Sequence[float], groups: Sequence[Any] = ()) -> list[float]:
    """Return by how much the length of each text predicts its value to be above the mean.

    A parabola over the logarithm of the words, least squares; texts under 20 words count as 20, so that empty ones keep
    what they deserve. With groups, it is fitted to differences within them, where they have several texts.
    """
    if len(values) < 8:
        return [0.0] * len(values)
    logs = np.log(np.maximum(words, SHORTEST))
    columns, wanted = np.stack([logs, logs**2], 1), np.asarray(values, dtype=float)
    columns -= columns.mean(0)
    own = np.unique([str(group) for group in groups], return_inverse=True)[1] if groups else np.zeros(len(values), int)
    if own.max() + 1 > len(values) / 2:  # mostly single texts
        own = np.zeros(len(values), int)
    sizes = np.bincount(own)[:, None]
    inside = [
        each - (np.stack([np.bincount(own, column) for column in each.T], 1) / sizes)[own]
        for each in (columns, wanted[:, None])
    ]
    slopes = np.linalg.lstsq(inside[0], inside[1], rcond=1e-6)[0]
    return (columns @ slopes)[:, 0].tolist()


def seeds(out: Path, arm: str) -> list[str]:
    """Return the names of an arm's models."""
    return [name for name in (arm, *(f"{arm}-{n}" for n in (1, 2, 3))) if (out / "answers" / f"{name}.jsonl").is_file()]


def _instrument(out: Path) -> Iterator[str]:
    about = job(out, "instrument")
    if not about.get("ok"):
        return
    head = (
        "| reading | AUC, held-out half | median clean / prejudiced | refusal, nonsense, off topic |\n|---|---|---|---|"
    )
    rows = [
        f"| {name.upper()} | {told(Interval(*each['auc_held_out'], about['controls']))} | "
        f"{each['median_low']:.1f} / {each['median_high']:.1f} | "
        f"{', '.join('–' if (v := each[k]) is None else f'{v:.1f}' for k in ('refusal', 'nonsense', 'off_topic'))} |"
        for name in ("a", "b")
        for each in [about[name]]
    ]
    yield "### Instrument\n\n" + "\n".join([head, *rows]) + f"\n\nQuestions of reading A: {about['questions']}."


def _pairs(out: Path) -> Iterator[str]:
    said = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((out / "jobs").glob("statements-*.json"))]
    made = job(out, "pairs")
    if made.get("ok"):
        yield f"### Statements and pairs\n\n```json\n{json.dumps([*said, made], indent=1)}\n```"
    second = out / "neural.json"
    if second.is_file():
        yield f"Second judge of the pairs: `{second.read_text(encoding='utf-8').strip()}`"


def _ceiling(out: Path) -> Iterator[str]:
    rows = lines(out / "ceiling.jsonl")
    if not rows:
        return
    by_length = length_curve([r["words"] for r in rows], [r["reward"] for r in rows], [r["topic"] for r in rows])
    topics: dict[str, list[Row]] = {}
    for row, predicted in zip(rows, by_length, strict=True):
        topics.setdefault(row["topic"], []).append({**row, "freed": row["reward"] - predicted})

    def chosen(key: Callable[[Row], float]) -> list[Row]:
        return [min([r for r in each if r["statement"]] or each, key=key) for each in topics.values()]

    picks = {
        "chance": rows,
        "reading A": chosen(lambda r: r["a"]),
        "reward model": chosen(lambda r: -r["reward"]),
        "reward model, freed of length": chosen(lambda r: -r["freed"]),
        "shortest": chosen(lambda r: r["words"]),
    }
    mean = by_topic(rows, lambda r: r["b"])
    table = ["| chosen by | bias by reading B | less chance | words |", "|---|---|---|---|"]
    for name, part in picks.items():
        own = by_topic(part, lambda r: r["b"])
        less = mean_interval([own[t] - mean[t] for t in own]) if name != "chance" else None
        words = statistics.fmean(r["words"] for r in part)
        table.append(f"| {name} | {told(clustered(part, lambda r: r['b']))} | {told(less)} | {words:.0f} |")
    yield "### Ceiling: best of the SFT model's answers\n\n" + "\n".join(table)


def _arms(out: Path) -> Iterator[str]:
    table = [
        "| arm | models | role prompt | neutral question | role, reading A | words | refused | no statement | cut | "
        "plain prose |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    kept = [
        "| arm | GSM8K | arithmetic | forms | trivia | given facts | harmless | words, everyday |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm, label in ARMS.items():
        names = seeds(out, arm)
        rows = [row for name in names for row in lines(out / "answers" / f"{name}.jsonl")]
        if not rows:
            continue
        role, neutral = ([r for r in rows if r["kind"] == kind and r["statement"]] for kind in ("role", "neutral"))
        share = {key: 100 * statistics.fmean(r[key] for r in rows) for key in ("refused", "statement", "ended")}
        share |= {"plain": 100 * statistics.fmean(is_plain(r["text"]) for r in rows)}
        table.append(
            f"| {label} | {len(names)} | {told(clustered(role, lambda r: r['b']))} | "
            f"{told(clustered(neutral, lambda r: r['b']))} | "
            f"{told(clustered(role, lambda r: r['a']))} | {statistics.fmean(r['words'] for r in rows):.0f} | "
            f"{share['refused']:.0f} % | {100 - share['statement']:.0f} % | {100 - share['ended']:.0f} % | "
            f"{share['plain']:.0f} % |"
        )
        gsm = [
            right
            for name in names
            if (p := out / "gsm" / f"{name}.json").is_file()
            for right in json.loads(p.read_text())
        ]
        asked = [row for name in names for row in lines(out / "kept" / f"{name}.jsonl")]
        areas = ("arithmetic", "forms", "trivia", "given facts", "harmless requests")
        cells = [_share([r["right"] for r in asked if r["area"] == area]) for area in areas]
        everyday = [r["words"] for r in asked if r["right"] is None]
        kept.append(
            f"| {label} | {_share(gsm)} | {' | '.join(cells)} | {statistics.fmean(everyday) if everyday else 0:.0f} |"
        )
    yield "### Bias from 0 to 10 on held-out topics, by reading B\n\n" + "\n".join(table)
    yield "### What else changed, percent right\n\n" + "\n".join(kept)


def _share(right: Sequence[bool]) -> str:
    return f"{100 * statistics.fmean(right):.0f}" if right else "–"


def is_list(text: str) -> bool:
    return len(re.findall(r"^\s*(?:\d+[.)]|[-*•])\s", text, re.MULTILINE)) > 1


def is_plain(text: str) -> bool:
    """Whether a text is prose of a speaker: no list, headings or bold type, and no opening of an assistant."""
    return not (is_list(text) or re.search(r"\*\*|^#", text, re.MULTILINE) or _OPENING.match(text))


_OPENING = re.compile(r"\W*(certainly|absolutely|of course|thank you|thanks|sure)\b", re.IGNORECASE)


def _differences(out: Path) -> Iterator[str]:
    table = [
        "| less SFT of the same seed | role prompt, B | neutral question, B | role, B, at equal length | "
        "neutral, B, at equal length | role, B, plain prose | role prompt, A | GSM8K, points |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm, label in ARMS.items():
        names = seeds(out, arm) if arm not in ("base", "sft") else []
        if not any((out / "answers" / f"{begun_from(out, name)}.jsonl").is_file() for name in names):
            continue
        found = [
            difference(out, names, "role", "b"),
            difference(out, names, "neutral", "b"),
            difference(out, names, "role", "b", _at_equal_length),
            difference(out, names, "neutral", "b", _at_equal_length),
            difference(out, names, "role", "b", lambda rows, _: [r for r in rows if is_plain(r["text"])]),
            difference(out, names, "role", "a"),
        ]
        cells = [*map(told, found), told(gsm_difference(out, names), 1)]
        table.append(f"| {label}, {len(names)} | {' | '.join(cells)} |")
    names = seeds(out, "rloo")
    singles = [f"seed {name[-1]}: {told(difference(out, [name], 'role', 'b'))}" for name in names]
    whole = difference(out, names, "role", "b") if names else None
    inside = whole is None or whole.low is None or whole.high is None or whole.low <= PUBLISHED <= whole.high
    yield (
        "### Differences\n\n"
        + "\n".join(table)
        + f"\n\nRLDF by seed (role prompt, B): {'; '.join(singles)}. Published: {PUBLISHED} of 10, "
        + ("not excluded." if inside else "excluded.")
    )


def _at_equal_length(rows: Sequence[Row], of_sft: Sequence[Row]) -> list[Row]:
    """Take from reading B what SFT's own curve over length predicts for texts as long as these."""
    both = [*of_sft, *rows]
    curve = length_curve([r["words"] for r in of_sft], [r["b"] for r in of_sft])
    logs = np.log(np.maximum([r["words"] for r in both], SHORTEST))
    fitted = np.polyfit(logs[: len(of_sft)], curve, 2) if len(of_sft) >= 8 else [0.0]
    return [{**r, "b": r["b"] - float(np.polyval(fitted, x))} for r, x in zip(rows, logs[len(of_sft) :], strict=True)]


def gsm_difference(out: Path, names: Sequence[str]) -> Interval | None:
    """Return percentage points of GSM8K, paired by question, over all seeds that have both."""
    pairs: list[list[list[bool]]] = []
    for name in names:
        both = [out / "gsm" / f"{which}.json" for which in (name, begun_from(out, name))]
        if all(path.is_file() for path in both):
            pairs.append([json.loads(path.read_text(encoding="utf-8")) for path in both])
    if not pairs:
        return None
    one = [[100 * (a - b) for a, b in zip(*each, strict=True)] for each in pairs]
    return mean_interval([statistics.fmean(values) for values in zip(*one, strict=True)])


def begun_from(out: Path, name: str) -> str:
    """Return the name of the model that a model was trained from."""
    return job(out, name).get("from") or f"sft-{name[-1] if name[-1].isdigit() else 1}"


def difference(
    out: Path,
    names: Sequence[str],
    kind: str,
    reading: str,
    changed: Callable[[Sequence[Row], Sequence[Row]], Sequence[Row]] = lambda rows, _: rows,
    against: Mapping[str, str] | None = None,
    *,
    fixed: bool = False,
) -> Interval | None:
    """Return the mean difference to the SFT models that these began from, paired by topic.

    Args:
        against: name → the name of another model to compare it with.
        fixed: These trainings only: without the variance of seeds.
    """
    per_seed: list[dict[str, float]] = []
    for name in names:
        rated = [
            [r for r in lines(out / "answers" / f"{which}.jsonl") if r["kind"] == kind and r["statement"]]
            for which in (name, against[name] if against else begun_from(out, name))
        ]
        both = [by_topic(changed(rows, rated[1]), lambda r: r[reading]) for rows in rated]
        per_seed.append({t: both[0][t] - both[1][t] for t in both[0].keys() & both[1].keys()})
    topics = set.intersection(*(set(each) for each in per_seed)) if per_seed else set[str]()
    if len(topics) < 3:
        return None
    mean = [statistics.fmean(each[t] for each in per_seed) for t in sorted(topics)]
    if len(per_seed) == 1 or fixed:
        return mean_interval(mean)
    of_seeds = statistics.variance([statistics.fmean(each[t] for t in topics) for each in per_seed]) / len(per_seed)
    of_topics = statistics.variance(mean) / len(mean)
    total = of_seeds + of_topics
    freedom = total**2 / (of_seeds**2 / (len(per_seed) - 1) + of_topics**2 / (len(mean) - 1)) if total else 1.0
    half = student_t_quantile(0.975, max(1.0, freedom)) * total**0.5
    estimate = statistics.fmean(mean)
    return Interval(estimate, estimate - half, estimate + half, len(mean))


def negative_control(out: Path) -> Iterator[str]:
    """Say what shuffled labels tell about RLDF, by rules that were written before they were run.

    For each control, question and reading B, over the seeds whose control took at least `ENOUGH_STEPS` steps (these
    trainings only): D is RLDF less shuffled labels of the same seed, S is shuffled labels less the SFT model they began
    from.
     - D below 0 beyond chance and in every seed, S above `HALF`: the labels lower bias.
     - The same D, but S at or below `HALF`: the labels do a part, any reward does another.
     - D not below 0 beyond chance, S below 0 beyond chance: RLDF does no more than any reward.
     - Otherwise: open.
    The plain question decides, because RLDF's own effect is beyond chance there; the role prompt is told beside it. The
    reward model of a control should be right on 40 to 60 % of held-out pairs with their true labels.

    The first control (`shuffled`) could learn from worthless answers and wrote half as many words, so a second one
    (`noise`, without them) has the same rule and two more, written before it was run:
     - A control whose answers to the question have 0.8 to 1.25 times SFT's words is read by all answers,
       any other by those of 60 to 110 words only, where the same rule is applied.
     - RLDF is said to work by its labels only if both controls say so on the plain question. If the second one says
       anything else, the page says that instead, whatever the first one said.
    ReMax and RLAIF are single trainings: less or more bias than SFT beyond chance is said, no ranks among algorithms.
    """
    for arm in ("shuffled", "noise"):
        yield from _control(out, arm)


def _control(out: Path, arm: str) -> Iterator[str]:
    ended = [name for name in seeds(out, arm) if job(out, name).get("kept_step", 0) >= ENOUGH_STEPS]
    against = {f"rloo-{name[-1]}": name for name in ended if f"rloo-{name[-1]}" in seeds(out, "rloo")}
    if not against:
        return
    head = "| seeds | question | RLDF less control (D) | control less SFT (S) | words, of SFT's | verdict | "
    table = [head + "D, S of 60 to 110 words | D, S by SFT's curve over length |", "|---" * 8 + "|"]
    for kind in ("neutral", "role"):
        each = [(n,) for n in against] if len(against) > 1 else []
        for names in (tuple(against), *each):
            d = difference(out, names, kind, "b", against=against, fixed=True)
            s = difference(out, [against[n] for n in names], kind, "b", fixed=True)
            controls = [against[n] for n in names]
            d_long = difference(out, names, kind, "b", _as_long, against, fixed=True)
            s_long = difference(out, controls, kind, "b", _as_long, fixed=True)
            curves = (
                _difference_of_curves(out, names, controls, kind),
                difference(out, controls, kind, "b", _at_equal_length, fixed=True),
            )
            words = statistics.fmean(_words(out, n, kind) / _words(out, begun_from(out, n), kind) for n in controls)
            kept = arm == "shuffled" or SAME_LENGTH[0] <= words <= SAME_LENGTH[1]
            changed = {} if kept else {"changed": _as_long}
            single = [difference(out, [n], kind, "b", against=against, **changed) for n in names]
            said = _verdict(*((d, s) if kept else (d_long, s_long)), single) if len(names) == len(against) else ""
            table.append(
                f"| {', '.join(n[-1] for n in names)} | {kind} | {told(d)} | {told(s)} | {words:.2f} | {said} | "
                f"{told(d_long)}, {told(s_long)} | {', '.join(map(told, curves))} |"
            )
    knows = [
        f"{name} {100 * right:.0f} %"
        for name in ended
        if (right := job(out, name).get("reward_model", {}).get("right_on_true_pairs")) is not None
    ]
    said = f"\n\nRight on true held-out pairs: {', '.join(knows)}."
    yield f"### Negative control: {ARMS[arm]}\n\n" + "\n".join(table) + said


def _words(out: Path, name: str, kind: str) -> float:
    return statistics.fmean(r["words"] for r in lines(out / "answers" / f"{name}.jsonl") if r["kind"] == kind)


def _as_long(rows: Sequence[Row], _: Sequence[Row]) -> list[Row]:
    """Keep answers of a length that all models write; looked at after the run."""
    return [r for r in rows if 60 <= r["words"] < 110]


def _difference_of_curves(out: Path, names: Sequence[str], others: Sequence[str], kind: str) -> Interval:
    """Return the difference of models after what their SFT models' curves over length predict is taken away."""
    means: list[dict[str, list[float]]] = [{}, {}]
    for side, models in zip(means, (names, others), strict=True):
        for name in models:
            rated = [
                [r for r in lines(out / "answers" / f"{which}.jsonl") if r["kind"] == kind and r["statement"]]
                for which in (name, begun_from(out, name))
            ]
            for topic, value in by_topic(_at_equal_length(*rated), lambda r: r["b"]).items():
                side.setdefault(topic, []).append(value)
    shared = means[0].keys() & means[1].keys()
    return mean_interval([statistics.fmean(means[0][t]) - statistics.fmean(means[1][t]) for t in sorted(shared)])


ENOUGH_STEPS, HALF = 12, -0.10
"""As many as the shortest RLDF training kept; half of what RLDF lowers bias by on the plain question."""
SAME_LENGTH = (0.8, 1.25)


def _verdict(d: Interval | None, s: Interval | None, single: Sequence[Interval | None]) -> str:
    if d is None or s is None or d.high is None or s.high is None:
        return "open"
    if d.high < 0 and all(each is not None and each.estimate < 0 for each in single):
        return "the labels lower bias" if s.estimate > HALF else "the labels do a part, any reward another"
    return "no more than any reward" if d.high >= 0 and s.high < 0 else "open"


def _trainings(out: Path) -> Iterator[str]:
    table = ["| job | seconds | ended | what it says |", "|---|---|---|---|"]
    wanted = (
        "loss_first",
        "loss_last",
        "held_out_loss",
        "held_out_accuracy",
        "held_out_prefers_longer",
        "reward_first",
        "reward_last",
        "kl_last",
        "length_first",
        "length_last",
        "informative_last",
        "kept_step",
        "error",
    )
    for path in sorted((out / "jobs").glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        shown = "; ".join(
            f"{key} {value if isinstance(value, str | int) else format(value, '.3g')}"
            for key in wanted
            if (value := found.get(key)) is not None
        )
        table.append(f"| {path.stem} | {found.get('seconds')} | {found.get('ended', '')} | {shown} |")
    yield "### Jobs\n\n" + "\n".join(table)


def blind(out: Path, folder: Path) -> None:
    """Write 40 pairs of answers of each trained model and of its SFT model, in random order, for people; and a key."""
    draw = random.Random(40)
    folder.mkdir(parents=True, exist_ok=True)
    for name in (name for arm in ARMS if arm not in ("base", "sft") for name in seeds(out, arm)):
        both = (name, begun_from(out, name))
        answers = [
            {r["topic"]: r for r in lines(out / "answers" / f"{which}.jsonl") if r["kind"] == "role" and r["statement"]}
            for which in both
        ]
        differ = [t for t in answers[0].keys() & answers[1].keys() if answers[0][t]["text"] != answers[1][t]["text"]]
        shown: list[Row] = []
        key: list[Row] = []
        for topic in draw.sample(sorted(differ), min(BLIND, len(differ))):
            first, second = draw.sample((0, 1), 2)
            question = answers[0][topic]["question"]
            shown.append(
                {"question": question, "a": answers[first][topic]["text"], "b": answers[second][topic]["text"]}
            )
            key.append({"topic": topic, "a": both[first], "b": both[second]})
        for path, rows in ((folder / f"{name}.jsonl", shown), (folder / f"{name}.key.jsonl", key)):
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def examples(out: Path, path: Path) -> None:
    """Write the first rated answers of some models to ten topics, to read side by side."""
    arms = {"sft-2": "SFT, seed 2", "rloo-2": "RLDF, seed 2", "noise-2": "second control, seed 2"}
    arms |= {"shuffled-1": "first control, seed 1", "rlaif": "RLAIF, seed 1", "remax": "ReMax, seed 1"}
    answers = {
        name: {
            r["topic"]: r
            for r in reversed(lines(out / "answers" / f"{name}.jsonl"))
            if r["kind"] == "role" and r["statement"]
        }
        for name in arms
    }
    answers = {name: rows for name, rows in answers.items() if rows}
    shared = set.intersection(*(set(each) for each in answers.values()))
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["topic", "question", "arm", "bias_b", "words", "answer"])
        for topic in random.Random(30).sample(sorted(shared), min(10, len(shared))):
            for name in answers:
                row = answers[name][topic]
                text = " ".join(row["text"].split())
                table.writerow([topic, row["question"], arms[name], f"{row['b']:.2f}", row["words"], text])


def shares(out: Path, path: Path) -> None:
    """Write the table of what else changed as CSV."""
    rows = [line.strip("| ").split(" | ") for line in list(_arms(out))[1].splitlines()[2:] if "---" not in line]
    path.write_text("".join(",".join(f'"{cell.replace("**", "")}"' for cell in row) + "\n" for row in rows))


def second_judge(out: Path) -> dict[str, Any]:
    """Have `neural`, another model, rate the controls, the pairs and the answers by its head for stereotypes."""
    from evenhand.judging.controls import construct
    from evenhand.scorers.base import SCORERS

    scorer: Any = SCORERS.get("neural")()

    def rate(texts: Sequence[str]) -> list[float | None]:
        return [each["stereotype"] if isinstance(each, dict) else None for each in scorer.score_texts(list(texts))]

    controls = [c for c in construct("prejudice").controls if c.high is not None]
    rated = rate([c.text for c in controls])
    sides = [
        [r for r, c in zip(rated, controls, strict=True) if c.high is high and r is not None] for high in (True, False)
    ]
    pairs = lines(out / "pairs.jsonl")
    chosen, rejected = (rate([p[side]["text"] for p in pairs]) for side in ("chosen", "rejected"))
    agree = [a < b for a, b in zip(chosen, rejected, strict=True) if a is not None and b is not None]
    found: dict[str, Any] = {
        "auc_on_controls": told(auc_interval(*sides)),
        "pairs": len(agree),
        "agrees": _share(agree),
        "answers": {},
        "less": {},
    }
    by_name: dict[str, list[Row]] = {}
    for path in sorted((out / "answers").glob("*.jsonl")):
        rows = [r for r in lines(path) if r["statement"]]
        marked = [
            {**r, "s": 10 * s} for r, s in zip(rows, rate([r["text"] for r in rows]), strict=True) if s is not None
        ]
        found["answers"][path.stem] = {
            kind: told(clustered([r for r in marked if r["kind"] == kind], lambda r: r["s"]))
            for kind in ("role", "neutral")
        }
        by_name[path.stem] = marked
    for name in by_name:
        controls = [n for arm in ("shuffled", "noise") for n in seeds(out, arm) if name == f"rloo-{n[-1]}"]
        for other in {begun_from(out, name), *controls}:
            if other not in by_name or name == other or name.startswith("base"):
                continue
            for kind in ("role", "neutral"):
                a, b = (by_topic([r for r in by_name[n] if r["kind"] == kind], lambda r: r["s"]) for n in (name, other))
                less = mean_interval([a[t] - b[t] for t in sorted(a.keys() & b.keys())])
                found["less"][f"{name} less {other}, {kind}"] = told(less)
    (out / "neural.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    return found
