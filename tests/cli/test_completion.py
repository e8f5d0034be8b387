"""Shell completion, as a shell asks for it."""

import pytest


@pytest.fixture
def complete(cli, monkeypatch: pytest.MonkeyPatch):
    """What bash would offer for the last of these words."""

    def ask(*words: str) -> list[str]:
        monkeypatch.setenv("_EVENHAND_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(("evenhand", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        result = cli()
        assert (result.code, result.err) == (0, ""), result
        return [line.partition(",")[2] for line in result.out.splitlines()]

    return ask


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("aud",), "audit"),
        (("pap",), "papers"),
        (("runs", "l"), "list"),
        (("run", "resc"), "rescore"),
        (("judges", "mal"), "malibu"),
        (("train", "deb"), "debate"),
        (("compare", "--meth"), "--method"),
        (("gate", "--undecided", "pa"), "pass"),
    ],
)
def test_the_word_is_completed(complete, words: tuple[str, ...], offered: str):
    assert complete(*words) == [offered]


def test_a_word_that_nothing_begins_with_offers_nothing(complete):
    assert not any(complete("xyz"))


def test_the_script_for_a_shell_is_printed(cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("_EVENHAND_COMPLETE", "zsh_source")

    assert "_EVENHAND_COMPLETE=zsh_complete" in cli().out
