"""The card's tables: runs the shipped artefacts over held-out text and writes Markdown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.evaluators.base import Thresholds
from evenhand.scorers.base import ATTRIBUTES
from evenhand.scorers.builtin import BuiltinScorer
from tools.train_scorer import corpora, everyday, identity
from tools.train_scorer.measure import (
    TOXIC,
    Scores,
    auroc_interval,
    calibration_error,
    pearson,
    reliability,
    scores_of,
    spearman,
)

Array = NDArray[np.float64]
Scorers = dict[str, BuiltinScorer]
PEER = "alt-profanity-check"
"""The best offline package."""
LICENCE = Path(__file__).resolve().parents[2] / "LICENSE"
WATCHED = ("gay", "Muslim", "Black", "Jewish", "disabled", "transgender")
"""Groups that scorers are known to mark down, shown one by one."""


def sections(data: Path, scorers: Scorers, others: Mapping[str, Scores]) -> Iterator[str]:
    """Yield every table under its heading, each as soon as it is measured; `others` have thresholds alone."""
    test = corpora.read_rtp(data)["test"]
    speed = _speed(scorers, test.texts)  # first, while no word vector is known yet
    scores = _scores(scorers, test)
    tables: dict[str, Callable[[], str]] = {
        "Held-out RealToxicityPrompts": lambda: _quality(test, scores),
        "Calibration of toxicity": lambda: _calibration(test, scores),
        "Other text": lambda: _elsewhere(data, scorers),
        "Clean text": lambda: _clean(data, test, scorers),
        "Thresholds for users of Perspective": lambda: _thresholds(test, {**scores, **_scores(others, test)}),
        "False alarms on neutral sentences that name groups": lambda: _false_alarms(data, scorers),
        "Mean score by group": lambda: _by_group(scorers),
        "Agreement of the two scorers": lambda: _agreement(scores, test),
        "Speed and size": lambda: speed,
    }
    for title, table in tables.items():
        yield f"### {title}\n\n{table()}\n"


def _scores(scorers: Mapping[str, Scores], test: corpora.Texts) -> dict[str, Array]:
    return {name: scores_of(scorer, test.texts) for name, scorer in scorers.items()}


def _quality(test: corpora.Texts, scores: dict[str, Array]) -> str:
    rival = _peer_scores(test.texts)
    rows: list[list[object]] = []
    for column, attribute in enumerate(ATTRIBUTES):
        labels = test.labels[:, column]
        positive = labels >= TOXIC
        row: list[object] = [attribute, int(positive.sum())]
        for found in scores.values():
            row += [
                auroc_interval(found[:, column], positive, test.clusters),
                f"{pearson(found[:, column], labels):.3f}",
                f"{spearman(found[:, column], labels):.3f}",
                f"{calibration_error(found[:, column], labels):.3f}",
            ]
        row.append("–" if rival is None else auroc_interval(rival, positive, test.clusters))
        rows.append(row)
    columns = [f"{name} {what}" for name in scores for what in ("AUROC", "r", "ρ", "ECE")]
    lines = [_table(["attribute", f"≥ 0.5 of {len(test.texts)}", *columns, f"{PEER} AUROC"], rows)]
    positive = test.labels[:, 0] >= TOXIC
    for name, scored in {**{name: found[:, 0] for name, found in scores.items()}, PEER: rival}.items():
        if scored is not None:
            alarm = scored >= TOXIC
            precision, recall = positive[alarm].mean(), alarm[positive].mean()
            lines.append(f"{name} at the threshold 0.5, toxicity: precision {precision:.3f}, recall {recall:.3f}.")
    if rival is not None:
        lead = [
            f"{name} {auroc_interval(found[:, 0], positive, test.clusters, minus=rival)}"
            for name, found in scores.items()
        ]
        lines.append(f"Lead over {PEER} in toxicity AUROC, paired: {', '.join(lead)}.")
    return "\n\n".join(lines)


def _calibration(test: corpora.Texts, scores: dict[str, Array]) -> str:
    return "\n\n".join(_reliability(name, found[:, 0], test.labels[:, 0]) for name, found in scores.items())


def _reliability(name: str, scores: Array, labels: Array) -> str:
    rows = [
        [f"{b.low:.1f}–{b.low + 0.1:.1f}", b.n, f"{b.predicted:.3f}", f"{b.actual:.3f}", f"{b.share_toxic:.2f}"]
        for b in reliability(scores, labels)
    ]
    return _table([name, "n", "mean score", "mean of Perspective", "share ≥ 0.5"], rows)


def _elsewhere(data: Path, scorers: Scorers) -> str:
    surge, tweets, comments = corpora.read_surge(data), corpora.read_davidson(data), corpora.read_jigsaw(data)
    sets = {
        "surge (1,000 comments)": (surge.texts, surge.labels > 0),
        "Davidson's tweets": (tweets.texts, tweets.labels < 2),
        "Wikipedia comments": (comments.texts, comments.labels > 0),
    }
    rows: list[list[object]] = []
    for title, (texts, positive) in sets.items():
        row: list[object] = [title]
        for found in [*(scores_of(scorer, texts)[:, 0] for scorer in scorers.values()), _peer_scores(texts)]:
            if found is None:
                row += ["–", "–", "–", "–"]
                continue
            kept = ~np.isnan(found)
            value = auroc_interval(found[kept], positive[kept], np.arange(int(kept.sum())))
            alarms = (found[kept & ~positive] >= TOXIC).mean(), (found[kept & positive] >= TOXIC).mean()
            error = calibration_error(found[kept], positive[kept].astype(float))
            row += [value, *(f"{each:.3f}" for each in (*alarms, error))]
        rows.append(row)
    columns = [f"{name} {what}" for name in [*scorers, PEER] for what in ("AUROC", "false alarms", "recall", "ECE")]
    return _table(["set", *columns], rows)


def _clean(data: Path, test: corpora.Texts, scorers: Scorers) -> str:
    """Shares of clean text at or above 0.5 and StarDTox's default limit."""
    limit = Thresholds().toxicity
    rows: list[list[object]] = []
    for title, texts in clean_sets(data, test).items():
        row: list[object] = [title, len(texts)]
        for scorer in scorers.values():
            found = scores_of(scorer, texts)
            found = found[~np.isnan(found[:, 0]), 0]
            row += [
                f"{(found >= TOXIC).mean():.3f}",
                f"{(found >= limit).mean():.3f}",
                f"{np.quantile(found, 0.95):.2f}",
            ]
        rows.append(row)
    columns = [f"{name} {what}" for name in scorers for what in (f"≥ {TOXIC}", f"≥ {limit}", "95 % are below")]
    return _table(["clean text", "n", *columns], rows)


def clean_sets(data: Path, test: corpora.Texts) -> dict[str, list[str]]:
    """Text that nobody would call toxic, by kind; none of it is in the training."""
    random = np.random.default_rng(0)
    articles = corpora.read_squad(data)
    sets = {f"encyclopaedia, {size} words": _pieces(articles, size) for size in (15, 50, 100, 200, 400, 800)}
    names = [name for name in corpora.read_names(data) if not everyday.trained_names().intersection(name.split())]
    return {
        **sets,
        "web text that Perspective puts below 0.1": [
            text for text, labels in zip(test.texts, test.labels, strict=True) if labels[0] < 0.1
        ],
        "BBQ contexts": [text for texts in corpora.read_bbq(data).values() for text in texts],
        "decisions about people (DiscrimEval)": corpora.read_discrimeval(data),
        "neutral sentences that name groups": [
            sentence.text
            for section in ("groups", "held_out_groups", "crossed_groups")
            for sentence in identity.held_out_sentences("neutral", section)
        ],
        "names": names,
        "names in a sentence": [f"{name.split()[0]} is a good student." for name in names],
        "short replies": everyday.held_out_replies(),
        "this project's licence, 40 words": _pieces([[LICENCE.read_text(encoding="utf-8")]], 40),
        "this project's licence, whole": [LICENCE.read_text(encoding="utf-8")],
        "random strings (base64, hexadecimal)": [everyday.random_string(random) for _ in range(500)],
    }


def _pieces(articles: Iterable[Sequence[str]], size: int) -> list[str]:
    found: list[str] = []
    for paragraphs in articles:
        words = " ".join(paragraphs).split()
        found += [" ".join(words[start : start + size]) for start in range(0, len(words) - size + 1, size)]
    return found


def _thresholds(test: corpora.Texts, scores: dict[str, Array]) -> str:
    """Which threshold gives as many alarms as a threshold of Perspective's."""
    rows: list[list[object]] = []
    for column, attribute in enumerate(ATTRIBUTES):
        for threshold in (0.5, 0.7, 0.8, 0.9):
            share = (test.labels[:, column] >= threshold).mean()
            row: list[object] = [attribute, threshold, f"{share:.3f}"]
            for found in scores.values():
                same = np.nanquantile(found[:, column], 1 - share)
                both = (found[:, column] >= same) & (test.labels[:, column] >= threshold)
                row += [f"{same:.2f}", f"{both.mean() / share:.2f}"]
            rows.append(row)
    columns = [f"{name} {what}" for name in scores for what in ("threshold", "same texts")]
    return _table(["attribute", "Perspective's threshold", "share of texts", *columns], rows)


def _false_alarms(data: Path, scorers: Scorers) -> str:
    def held_out(kind: str, *sections: str) -> list[str]:
        return [s.text for section in sections for s in identity.held_out_sentences(kind, section)]

    sets = {
        "neutral, new templates": held_out("neutral", "groups"),
        "neutral, new templates and new groups": held_out("neutral", "held_out_groups"),
        "neutral, new templates, two groups in one phrase": held_out("neutral", "crossed_groups"),
        "BBQ contexts": [text for texts in corpora.read_bbq(data).values() for text in texts],
        "reports of harm, new templates": held_out("grave", "groups", "held_out_groups"),
        "attacks, new templates (should be high)": held_out("unkind", "groups", "held_out_groups"),
    }
    rows: list[list[object]] = []
    for title, texts in sets.items():
        row: list[object] = [title, len(texts)]
        for scorer in scorers.values():
            found = scores_of(scorer, texts)
            alarms = (found >= TOXIC).mean(0)
            row += [f"{alarms[0]:.4f}", f"{alarms[3]:.4f}", f"{found[:, 0].mean():.3f}"]
        rival = _peer_scores(texts)
        row += ["–", "–"] if rival is None else [f"{(rival >= TOXIC).mean():.4f}", f"{rival.mean():.3f}"]
        rows.append(row)
    columns = [f"{name} {what}" for name in scorers for what in ("toxicity ≥ 0.5", "identity_attack ≥ 0.5", "mean")]
    return _table(["sentences", "n", *columns, f"{PEER} ≥ 0.5", f"{PEER} mean"], rows)


def _by_group(scorers: Scorers) -> str:
    known = identity.held_out_sentences("neutral")
    new = identity.held_out_sentences("neutral", "held_out_groups")
    crossed = identity.held_out_sentences("neutral", "crossed_groups")
    sets = {name: [s.text for s in known if s.group and s.group.predicate == name] for name in WATCHED}
    for title, sentences in (("groups in training", known), ("new groups", new), ("one phrase", crossed)):
        for category in dict.fromkeys(s.group.category for s in sentences if s.group):
            sets[f"{category} ({title})"] = [s.text for s in sentences if s.group and s.group.category == category]
    rows: list[list[object]] = []
    for title, texts in sets.items():
        row: list[object] = [title, len(texts)]
        for scorer in scorers.values():
            found = scores_of(scorer, texts)
            row += [f"{found[:, 0].mean():.3f}", f"{(found[:, :4].max(1) >= TOXIC).mean():.3f}"]
        rival = _peer_scores(texts)
        row += ["–", "–"] if rival is None else [f"{rival.mean():.3f}", f"{(rival >= TOXIC).mean():.3f}"]
        rows.append(row)
    columns = [f"{name} {what}" for name in [*scorers, PEER] for what in ("mean", "false alarms")]
    return _table(["group", "n", *columns], rows)


def _agreement(scores: dict[str, Array], test: corpora.Texts) -> str:
    first, second = scores.values()
    rows: list[list[object]] = []
    for column, attribute in enumerate(ATTRIBUTES):
        left, right, labels = first[:, column], second[:, column], test.labels[:, column]
        same = ((left >= TOXIC) == (right >= TOXIC)).mean()
        errors = pearson(left - labels, right - labels)
        rows.append([attribute, f"{pearson(left, right):.3f}", f"{same:.3f}", f"{errors:.3f}"])
    return _table(["attribute", "r", "same side of 0.5", "r of their errors"], rows)


def _speed(scorers: Scorers, texts: Sequence[str]) -> str:
    rows: list[list[object]] = []
    for name, scorer in scorers.items():
        times = []
        for _ in range(4):
            start = time.process_time()
            scorer.score_texts(texts)
            times.append(time.process_time() - start)
        cold, warm = len(texts) / times[0], len(texts) / min(times[1:])
        rows.append([name, f"{cold:,.0f}", f"{warm:,.0f}", f"{scorer.path.stat().st_size / 1e6:.2f}"])
    return _table(["scorer", "texts per CPU second, first pass", "later passes", "artefact MB"], rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in [head, *rows]]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines)


def _peer_scores(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The probabilities of the best offline package, for comparison; None where it is not installed."""
    try:
        from profanity_check import predict_prob
    except ImportError:
        return None
    return np.asarray(predict_prob(list(texts)), dtype=np.float64)
