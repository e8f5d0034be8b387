"""The pages over real HTTP: who gets what, and what nobody gets."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from evenhand.annotate.pages import open_study
from evenhand.annotate.ratings import fill_sheets, import_ratings, read_key
from evenhand.core.errors import DataError
from support.rating_study import MARKUP, NASTY, PLAIN, StudyServer, copy_study, make_study
from support.rubrics import written


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("study"), ("ann", "ben", "cy"), per_item=2)


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    return copy_study(exported, tmp_path / "ratings")


@pytest.fixture
def server(folder: Path) -> Iterator[StudyServer]:
    server = StudyServer(folder)
    yield server
    server.close()


class Visitor:
    """A script that asks with a link's token, as the page does."""

    def __init__(self, server: StudyServer, token: str) -> None:
        self._url, self._token, self.form_token = server.url, token, ""

    async def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "X-Token": self.form_token, **headers}
        method = "GET" if body is None else "POST"
        async with (
            aiohttp.ClientSession(self._url) as client,
            client.request(method, path, json=body, headers=headers) as response,
        ):
            content = await response.json()
        self.form_token = content.get("token", self.form_token)
        return response.status, content

    async def rate(self, place: int, scale: str, value: Any) -> int:
        if not self.form_token:
            await self.ask("/api/rating")
        return (await self.ask("/api/rating", {"place": place, "scale": scale, "value": value}))[0]

    async def rate_all(self, value: int) -> None:
        _, study = await self.ask("/api/rating")
        for place in range(study["count"]):
            for scale in study["scales"]:
                assert await self.rate(place, scale["short"], value) == 200


async def test_a_rater_gets_blind_items_and_a_rubric_with_examples(server: StudyServer):
    ann = Visitor(server, server.token("ann"))
    status, study = await ann.ask("/api/rating")
    _, part = await ann.ask("/api/rating/items/0")

    assert (status, study["rater"], study["ratings"]) == (200, "ann", {})
    assert study["count"] == len(part["items"]) == len(server.study.items["ann"])
    assert [set(each) for each in part["items"]] == [{"question", "answer", "covered"}] * study["count"]
    everything = str(study) + str(part)
    assert all(word not in everything for word in ("default", "fair_prompt", "call/", server.folder.parent.name))
    assert all(each.id not in everything for each in server.study.items["ann"])
    assert [each["short"] for each in study["scales"]] == ["BS", "CE", "LS"]
    assert all([one["rating"] for one in each["examples"]] == [0, 50, 100] for each in study["scales"])


async def test_each_rater_has_an_order_of_their_own(server: StudyServer):
    orders = [[item.id for item in server.study.items[rater]] for rater in ("ann", "ben", "cy")]

    shared = set(orders[0]) & set(orders[1])
    assert [each for each in orders[0] if each in shared] != [each for each in orders[1] if each in shared]


async def test_ratings_are_kept_undone_and_seen_from_another_device(server: StudyServer):
    ann = Visitor(server, server.token("ann"))
    assert await ann.rate(3, "BS", 70) == 200
    assert await ann.rate(3, "CE", None) == 200
    assert await ann.rate(3, "BS", 40) == 200

    phone = Visitor(server, server.token("ann"))
    _, study = await phone.ask("/api/rating")
    assert study["ratings"] == {"3": {"BS": 40, "CE": None}}
    _, undone = await phone.ask("/api/rating/undo", {})
    assert (undone["place"], undone["scale"], undone["ratings"]) == (3, "BS", {"3": {"BS": 70, "CE": None}})


async def test_a_rater_sees_nothing_of_others(server: StudyServer):
    await Visitor(server, server.token("ben")).rate(0, "BS", 90)
    ann = Visitor(server, server.token("ann"))

    assert (await ann.ask("/api/rating"))[1]["ratings"] == {}
    status, refusal = await ann.ask("/api/study")
    assert status == 403
    assert "owner's link" in refusal["error"]["message"]
    assert (await ann.ask("/api/rating/undo", {}))[1]["place"] is None  # and can undo nothing of theirs


async def test_the_owner_sees_figures_and_cannot_rate(server: StudyServer):
    for rater, value in (("ann", 20), ("ben", 20), ("cy", 90)):
        await Visitor(server, server.token(rater)).rate_all(value)
    owner = Visitor(server, server.token())

    _, study = await owner.ask("/api/study?width=2.5")
    assert [(each["rater"], each["done"], each["planned"]) for each in study["progress"]] == [
        (rater, len(own), len(own)) for rater, own in server.study.items.items()
    ]
    assert study["agreement"][0]["fleiss"]["n"] == 10
    assert study["agreement"][0]["fleiss"]["estimate"] < 0.1
    assert study["wanted"] == 2.5
    assert "mean" not in str(study)
    assert (await owner.ask("/api/rating"))[0] == 403
    assert (await owner.ask("/api/rating", {"place": 0, "scale": "BS", "value": 1}))[0] == 403


@pytest.mark.parametrize("width", ["0", "-1", "nan", "inf", "51", "x"])
async def test_a_wrong_width_is_one_sentence(server: StudyServer, width: str):
    status, refusal = await Visitor(server, server.token()).ask(f"/api/study?width={width}")

    assert status == 400
    assert refusal["error"]["message"] == "The half-width must be a number from 0.1 to 50."


@pytest.mark.parametrize(
    "body",
    [
        {"place": 0, "scale": "BS", "value": 101},
        {"place": 0, "scale": "BS", "value": -1},
        {"place": 0, "scale": "BS", "value": 7.5},
        {"place": 0, "scale": "BS", "value": "70"},
        {"place": 0, "scale": "BS", "value": True},
        {"place": 0, "scale": "BS"},
        {"place": 0, "scale": "XX", "value": 1},
        {"place": -1, "scale": "BS", "value": 1},
        {"place": 99, "scale": "BS", "value": 1},
        {"place": 0, "scale": "BS", "value": 1, "rater": "ben"},
        [],
    ],
    ids=str,
)
async def test_what_is_no_rating_is_refused(server: StudyServer, body: Any):
    ann = Visitor(server, server.token("ann"))
    await ann.ask("/api/rating")

    assert (await ann.ask("/api/rating", body))[0] == 400
    assert (await ann.ask("/api/rating"))[1]["ratings"] == {}


@pytest.mark.parametrize("presented", ["", "x", "0" * 43])
@pytest.mark.parametrize("path", ["/api/rating", "/api/rating/items/0", "/api/study"])
async def test_without_a_right_token_there_is_no_data(server: StudyServer, presented: str, path: str):
    status, refusal = await Visitor(server, presented).ask(path)

    assert status == 401
    assert set(refusal) == {"error"}


async def test_pages_are_open_but_empty_and_protected(server: StudyServer):
    async with aiohttp.ClientSession(server.url) as client:
        for path in ("/", "/owner"):
            async with client.get(path) as response:
                text = await response.text()
                assert response.status == 200
                assert "default-src 'none'" in response.headers["Content-Security-Policy"]
                assert response.headers["Cache-Control"] == "no-store"
                assert PLAIN not in text
        async with client.get("/nowhere", headers={"Accept": "text/html"}) as response:
            assert response.status == 404
            assert "There is no such page." in await response.text()


async def test_other_sites_cannot_rate(server: StudyServer):
    ann = Visitor(server, server.token("ann"))
    await ann.ask("/api/rating")
    body = {"place": 0, "scale": "BS", "value": 1}

    assert (await ann.ask("/api/rating", body, Origin="http://evil.example"))[0] == 403
    assert (await ann.ask("/api/rating", body, **{"Sec-Fetch-Site": "cross-site"}))[0] == 403
    ann.form_token = "wrong"
    assert (await ann.ask("/api/rating", body))[0] == 403
    assert (await ann.ask("/api/rating"))[1]["ratings"] == {}


async def test_tokens_are_in_no_log(server: StudyServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    await Visitor(server, server.token("ann")).rate(0, "BS", 10)
    await Visitor(server, "a-wrong-token").ask("/api/rating")

    assert "sent a wrong API key" in caplog.text
    assert server.token("ann") not in caplog.text
    assert "a-wrong-token" not in caplog.text


async def test_ratings_fill_the_sheets_which_the_import_reads(server: StudyServer):
    with pytest.raises(DataError, match="raters: there is no rating in any sheet yet"):
        import_ratings(server.folder)
    await Visitor(server, server.token("ann")).rate_all(20)
    await Visitor(server, server.token("ben")).rate_all(30)
    assert import_ratings(server.folder).absent == ["cy"]

    cy = Visitor(server, server.token("cy"))
    await cy.rate_all(40)
    await cy.rate(0, "LS", None)
    found = import_ratings(server.folder)

    assert found.cannot_tell == {"BS": 0, "CE": 0, "LS": 1}
    assert all(20 <= each.mean.estimate <= 40 for each in found.ratings if each.mean.estimate is not None)
    with (server.folder / "raters" / "cy.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "question", "answer", "BS", "CE", "LS"]
    assert [row["id"] for row in rows] == [item.id for item in server.study.items["cy"]]
    assert (rows[0]["BS"], rows[0]["LS"], rows[1]["LS"]) == ("40", "?", "40")


def test_cells_that_were_filled_by_hand_stay(folder: Path):
    path = folder / "raters" / "ann.csv"
    by_hand = path.read_text(encoding="utf-8-sig").replace(",,,", ",1,2,3")
    path.write_text(by_hand, encoding="utf-8")
    server = StudyServer(folder)
    try:
        server._call(_rate(server))
    finally:
        server.close()

    assert fill_sheets(folder, {**read_key(folder), "raters": ["ann"]}) == 1
    with path.open(encoding="utf-8-sig", newline="") as file:
        first, second, *_ = csv.DictReader(file)
    assert (first["BS"], first["CE"], first["LS"], second["BS"]) == ("90", "2", "3", "1")


async def _rate(server: StudyServer) -> None:
    server.study.rate("ann", 0, "BS", 90)


async def test_links_work_again_after_a_restart(server: StudyServer):
    ann = Visitor(server, server.token("ann"))
    await ann.rate(0, "BS", 10)
    server.stop()
    server.start()

    assert (await ann.ask("/api/rating"))[1]["ratings"] == {"0": {"BS": 10}}


def test_offensive_texts_are_covered_and_markup_is_text(tmp_path: Path):
    folder = make_study(tmp_path, ("ann",), answers=(NASTY, MARKUP))
    covered = {}
    for cover in ("offensive", "all", "none"):
        server = StudyServer(folder, cover=cover)
        covered[cover] = {item.answer for item in server.study.items["ann"] if item.covered}
        server.close()

    assert NASTY in covered["offensive"]
    assert covered["all"] == {NASTY, MARKUP}
    assert covered["none"] == set()


async def test_a_sheet_that_lost_rows_is_refused(folder: Path):
    path = folder / "raters" / "ann.csv"
    lines = path.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    path.write_text("".join(lines[:-1]), encoding="utf-8")

    with pytest.raises(DataError, match=r"ann\.csv: rows or texts are missing"):
        await open_study(folder)


async def test_a_rubric_with_a_short_scale_has_its_own_limits_and_no_text_of_known_value_is_shown(tmp_path: Path):
    folder = make_study(tmp_path, ("ann",), rubric=str(written(tmp_path / "polite.yaml")))
    server = StudyServer(folder)
    try:
        ann = Visitor(server, server.token("ann"))
        _, study = await ann.ask("/api/rating")
        await ann.rate_all(4)
        beyond = await ann.rate(0, "P", 6)
    finally:
        server.close()

    assert (study["highest"], [each["short"] for each in study["scales"]]) == (5, ["P"])
    assert "Go away." not in str(study)
    assert beyond == 400
    assert {each.mean.estimate for each in import_ratings(folder).ratings} == {80.0}
