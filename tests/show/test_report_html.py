"""The report as a file: complete, self-contained, strict, and calm about missing data."""

from __future__ import annotations

import base64
import hashlib
import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import sample_study
from hostile import ATTACK, LONG, poisoned

from evenhand.core.types import Usage
from evenhand.show.markup import clean, escape
from evenhand.show.report import render_report, write_report
from evenhand.studies.conclusions import nothing_measured
from evenhand.studies.results import StudyResult
from support.report_data import sample_data

_VOID = {"meta", "link", "input", "br", "hr"}


class Tree(HTMLParser):
    """Checks that tags nest, and keeps what was met."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def page() -> str:
    return render_report(sample_study.study(), sample_study.samples(20))


def test_the_page_is_well_formed_with_unique_ids(page: str) -> None:
    tree = Tree(page)
    ids = [attrs["id"] for _, attrs in tree.tags if "id" in attrs]
    assert tree.stack == []
    assert len(ids) == len(set(ids))


def test_every_link_of_the_navigation_leads_somewhere(page: str) -> None:
    tree = Tree(page)
    ids = {attrs.get("id") for _, attrs in tree.tags}
    targets = [attrs["href"] for tag, attrs in tree.tags if tag == "a"]
    assert len(targets) == 11
    assert all(target and target[1:] in ids for target in targets)


def test_nothing_is_loaded_from_anywhere(page: str) -> None:
    for tag, attrs in Tree(page).tags:
        assert tag not in ("img", "iframe", "object", "embed", "base")
        assert "src" not in attrs
        assert "style" not in attrs, "inline styles are against the page's own policy"
        assert not any(name.startswith("on") for name in attrs)
        assert tag != "link" or (attrs["href"] or "").startswith("data:")
        assert tag not in ("a", "use") or (attrs["href"] or "").startswith("#")
    assert "eval(" not in page
    assert "innerHTML" not in page


def test_the_policy_admits_exactly_our_style_and_script(page: str) -> None:
    policy = next(a["content"] for _, a in Tree(page).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for name in ("style", "script"):
        content = re.search(rf"<{name}(?: type=\"module\")?>(.*?)</{name}>", page, re.DOTALL)
        assert content is not None
        digest = base64.b64encode(hashlib.sha256(content.group(1).encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy


def test_verdicts_warnings_and_every_arm_are_there(page: str) -> None:
    study, text = sample_study.study(), Tree(page).text
    for finding in study.findings:
        assert f"{finding.symbol} {finding.word}: {finding.text}. {finding.detail}" in text
    for sentence in study.warnings:
        assert sentence in text
    for shown in ("18.6 [15.2, 22.0] n = 660", "$0.00", "49 min 11 s", "Samples not run: cot 81", "318 (19 %)"):
        assert shown in text


def test_an_unknown_price_is_a_dash_that_explains_itself(page: str) -> None:
    assert '<abbr title="The price of some of these calls is unknown.">–</abbr>' in page


def test_undefined_cells_show_a_dash_and_n(page: str) -> None:
    assert "fair_prompt: –, n = 60" in page
    assert "– undefined" in page


def test_it_says_how_many_samples_are_embedded(page: str) -> None:
    assert "20 samples of 1,320, with all messages" in page


def test_embedded_samples_can_be_read_back(page: str) -> None:
    data = sample_data(page)
    assert [s["id"] for s in data["samples"]] == sorted(s.id for s in sample_study.samples(20))
    assert data["samples"][0]["outcomes"][0]["turns"][0]["prompt_id"] == "bbq/ask"


def test_a_page_stays_small_enough_to_open_however_long_its_samples_are() -> None:
    words = random.Random(1)
    long = [replace(each, context=words.randbytes(50_000).hex()) for each in sample_study.samples(60)]

    page = render_report(sample_study.study(), long)

    assert len(page.encode()) < 1_500_000
    shown = len(sample_data(page)["samples"])
    assert 10 < shown < 60
    assert f"{shown} samples of 1,320, with all messages" in page
    assert "evenhand run show RUN SAMPLE --turns" in page


def test_the_browser_never_unpacks_more_than_it_can_search() -> None:
    long = [replace(each, context="é" * 500_000) for each in sample_study.samples(20)]

    page = render_report(sample_study.study(), long)

    assert "7 samples of 1,320, with all messages" in page


def test_samples_are_listed_by_id_whatever_the_order_they_come_in() -> None:
    samples = sample_study.samples(9)

    page = render_report(sample_study.study(), samples[::-1])

    assert [each["id"] for each in sample_data(page)["samples"]] == sorted(each.id for each in samples)


def test_only_the_headline_is_drawn_before_a_metric_is_chosen(page: str) -> None:
    panels = [attrs for tag, attrs in Tree(page).tags if tag == "figure" and "data-panel" in attrs]
    assert ["hidden" in attrs for attrs in panels] == [False, True, True, True, True, True]


def test_hostile_text_stays_text() -> None:
    study: StudyResult = poisoned(sample_study.study())
    tree = Tree(render_report(study, poisoned(sample_study.samples(3))))
    names = [tag for tag, _ in tree.tags]
    assert tree.stack == []
    assert "img" not in names
    assert names.count("script") == 2
    assert not any("onload" in attrs for _, attrs in tree.tags)
    assert " ".join(clean(study.title).split()) in tree.text


def test_every_text_of_the_study_is_shown_escaped() -> None:
    study: StudyResult = poisoned(sample_study.study())
    page = render_report(study, [])
    reasons = [reason for arm in study.arms for _, reason, _ in arm.reasons]
    labels = [arm.label for arm in study.arms]
    recorded = [name for name, value in study.provenance.items() if value]
    for text in (study.benchmark, *study.warnings, *reasons, *labels, *recorded):
        assert escape(text) in page
    assert all(" ".join(clean(each.text).split()) in Tree(page).text for each in study.findings)
    assert ATTACK not in page


def test_lone_surrogates_and_long_texts_can_be_written(tmp_path: Path) -> None:
    sample = replace(sample_study.samples(1)[0], context=LONG + "\ud800", prompt="\udfff")
    path = tmp_path / "report.html"
    write_report(sample_study.study(), [sample], path)
    assert LONG in sample_data(path.read_text(encoding="utf-8"))["samples"][0]["context"]


def test_the_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write_report(sample_study.study(), sample_study.samples(1), path)
    before = path.read_bytes()

    def broken() -> list[object]:
        raise RuntimeError("the store went away")

    with pytest.raises(RuntimeError):
        write_report(sample_study.study(), (s for s in broken()), path)  # type: ignore[arg-type]
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_the_same_study_gives_the_same_bytes() -> None:
    pages = {render_report(sample_study.study(), sample_study.samples(5)) for _ in range(2)}
    assert len(pages) == 1


def test_cut_answers_readings_of_judges_and_thoughts_are_counted() -> None:
    study = sample_study.study()
    arm = replace(
        study.arms[0],
        statuses={"graded": 90, "cut": 7},
        reasons=[("cut", "cut at 256 tokens", 7)],
        at_limit=12,
        readings={"samples": 88, "logprobs and written": 1},
        usage={"base": Usage(calls=97, prompt_tokens=10, completion_tokens=9_000, thought_tokens=8_000)},
    )

    text = Tree(render_report(replace(study, arms=[arm], effects=[]), [])).text

    assert "90 graded, 7 cut, 12 answers read although the token limit was reached" in text
    assert "cut the reply reached its token limit before it held an answer" in text
    assert "default cut cut at 256 tokens 7" in text
    assert "default: means of sampled replies in 88 samples; " in text
    assert "expected values by logprobs and the numbers as written in 1 sample." in text
    assert "9,000 of which 8,000 thoughts" in text


def without(study: StudyResult, name: str) -> StudyResult:
    arm = study.arms[0]
    zero = [replace(e, value=None, low=None, high=None, n=0) for e in arm.estimates]
    return {
        "one arm": replace(study, arms=[arm], effects=[], findings=[], warnings=[]),
        "no arms": replace(study, arms=[], effects=[], findings=[]),
        "nothing graded": replace(
            study,
            arms=[replace(arm, estimates=zero, statuses={"refused": 12}, position=None, confusion={}, usage={})],
            effects=[],
        ),
        "no estimates": replace(study, arms=[replace(a, estimates=[]) for a in study.arms]),
        "no metrics": replace(study, metrics=(), guardrails=(), groups=()),
        "nothing at all": StudyResult("", "", "m", (), (), (), [], [], [], [], {}),
    }[name]


@pytest.mark.parametrize(
    ("name", "sections"),
    [
        ("one arm", ["overview", "groups", "answers", "position", "cost", "failures", "made"]),
        ("no arms", ["overview", "made"]),
        ("nothing graded", ["overview", "cost", "failures", "made"]),
        ("no estimates", ["overview", "changes", "answers", "position", "cost", "failures", "made"]),
        (
            "no metrics",
            ["overview", "groups", "changes", "answers", "position", "cost", "failures", "made"],
        ),
        ("nothing at all", ["overview"]),
    ],
)
def test_sections_without_content_are_left_out(name: str, sections: list[str]) -> None:
    tree = Tree(render_report(without(sample_study.study(), name), []))
    assert tree.stack == []
    assert [attrs["id"] for tag, attrs in tree.tags if tag == "section"] == sections
    assert [attrs["href"] for tag, attrs in tree.tags if tag == "a"][1:] == [f"#{each}" for each in sections]


def test_zero_graded_samples_show_dashes_and_no_zero() -> None:
    text = Tree(render_report(without(sample_study.study(), "nothing graded"), [])).text
    assert "– n = 0" in text
    assert "0.0 % coverage of 12 samples run" in text
    assert "0.0 [" not in text


def test_a_study_in_which_every_sample_failed_says_so_and_shows_no_metric() -> None:
    study = without(sample_study.study(), "nothing graded")
    failed = replace(study.arms[0], statuses={"failed": 10, "cut": 2}, reasons=[("failed", "500: out of memory", 10)])
    study = replace(study, arms=[failed], findings=[nothing_measured(replace(study, arms=[failed]))], warnings=[])

    text = Tree(render_report(study, [])).text

    assert "? Cannot tell: Nothing was measured, none of the 12 samples has a grade. Reasons: 10 × failed, 500:" in text
    assert "10 failed" in text
    assert "n = 0" not in text
    assert "In brackets: confidence intervals" not in text


def test_caveats_stand_in_the_box_of_the_verdict() -> None:
    study = replace(sample_study.study(), caveats=["The judge is the audited model itself."])

    html = render_report(study, [])

    box = html[html.index('class="verdicts') :]
    assert "The judge is the audited model itself." in box[: box.index("</div>")]


def test_another_benchmark_gets_its_own_words() -> None:
    study = sample_study.study()
    metrics = [replace(m, name=m.name.replace("disambig", "clear")) for m in study.metrics]
    arms = [
        replace(a, estimates=[replace(e, metric=e.metric.replace("disambig", "clear")) for e in a.estimates])
        for a in study.arms
    ]
    other = replace(study, metrics=metrics, arms=arms, effects=[], guardrails=("accuracy_ambig",))
    text = Tree(render_report(other, [])).text
    assert "The main metric beside its guardrail" in text
    assert "no measured bias" not in text


def test_more_arms_than_colours_start_again() -> None:
    study = sample_study.study()
    arms = [replace(study.arms[0], id=f"a{i}", label=f"arm {i}", usage={"base": Usage(1)}) for i in range(11)]
    page = render_report(replace(study, arms=arms, effects=[]), [])
    assert 'href="#mark-8"' not in page
    assert "arm 10" in page


def test_parts_that_a_study_does_not_have_are_left_out() -> None:
    whole = sample_study.study()
    plain = replace(whole, arms=[replace(arm, position=None, confusion={}) for arm in whole.arms])

    for study, expected in ((whole, True), (plain, False)):
        page = render_report(study, [])
        for part in ("answers", "position"):
            assert (f'id="{part}"' in page) is expected
            assert (f'href="#{part}"' in page) is expected
