"""A pack proves itself to a third party, who has an empty folder with only the pack and what was published."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs pip install 'evenhand[sign]'")

from cryptography.hazmat.primitives.serialization import load_pem_public_key

from evenhand.core.files import sha256
from evenhand.evidence import verify
from support.shell import Shell

PLAN = "benchmark: bbq_builtin\nmodels: [fake/A]\nlimit: 22\nseeds: [{seed}]\n"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def third_party(shell: Shell, tmp_path: Path) -> Path:
    """A folder with the pack, the published commitment and the public key; the maker's files are gone."""
    (tmp_path / "plan.yaml").write_text(PLAN.format(seed=7123))
    for command in (
        ("evidence", "key", "maker.key"),
        ("evidence", "commit", "plan.yaml", "--hidden"),
        ("run", "--config", "plan.yaml", "--out", "runs/audit"),
        (
            *("evidence", "pack", "runs/audit", "--no-pdf", "--out", "pack"),
            *("--commitment", "commitment.opening.json", "--sign", "maker.key"),
        ),
    ):
        assert shell(*command) == 0, shell.err
    away = tmp_path / "away"
    away.mkdir()
    for name in ("pack", "commitment.json", "maker.pub"):
        shutil.move(tmp_path / name, away / name)
    return away


def check(shell: Shell, away: Path) -> tuple[int, str]:
    found = shell(
        "evidence", "verify", away / "pack", "--key", away / "maker.pub", "--commitment", away / "commitment.json"
    )
    return found, shell.out


def test_the_pack_alone_shows_what_was_run_and_who_signed_it(shell: Shell, third_party: Path, tmp_path: Path):
    code, said = check(shell, third_party)

    assert code == 0, said
    assert "audit was run as committed to (plan, data, models, samples, seeds and version of Evenhand)" in said
    assert "It is the commitment of" in said
    assert "It is the key in" in said
    assert "Not shown:\n  That the grades are those of the models' answers" in said
    assert shell("evidence", "verify", third_party / "pack") == 0
    assert "Whose key that is: pass the public key that you know" in shell.out
    assert "That the commitment was made before the run" in shell.out
    assert (tmp_path / "maker.key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "commitment.opening.json").stat().st_mode & 0o777 == 0o600


def test_the_published_commitment_tells_nothing_of_a_hidden_seed(third_party: Path):
    published = json.loads((third_party / "commitment.json").read_text())

    assert set(published) == {"sha256"}
    opened = json.loads((third_party / "pack/commitments/audit.json").read_text())
    assert opened["sha256"] == published["sha256"]
    assert opened["seeds"] == [7123]
    assert len(opened["salt"]) == 64


def test_the_envelope_is_what_other_tools_read(third_party: Path):
    envelope = json.loads((third_party / "pack/signature.dsse.json").read_text())
    body = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(body), body)

    key: Any = load_pem_public_key((third_party / "maker.pub").read_bytes())
    key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), signed)
    statement = json.loads(body)
    assert (kind, statement["_type"]) == (b"application/vnd.in-toto+json", "https://in-toto.io/Statement/v1")
    named = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert named["grades/audit.jsonl"] == sha256(third_party / "pack/grades/audit.jsonl")


def change_a_grade(pack: Path) -> str:
    file = pack / "grades/audit.jsonl"
    file.write_text(file.read_text().replace('"correct":true', '"correct":false', 1))
    return "in arm 1 was changed"


def change_a_grade_and_its_hashes(pack: Path) -> str:
    """A forger who also makes the line's own hash and the manifest fit."""
    from evenhand.evidence.disclosed import _sealed

    file = pack / "grades/audit.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    changed = next(row for row in rows if row.get("status") == "graded")
    changed["reason"] = "x"
    file.write_text("".join(json.dumps(_sealed(row)) + "\n" for row in rows))
    return fit_the_manifest(pack, "grades/audit.jsonl")


def fit_the_manifest(pack: Path, name: str) -> str:
    manifest = json.loads((pack / "manifest.json").read_text())
    manifest["sha256"][name] = sha256(pack / name)
    (pack / "manifest.json").write_text(json.dumps(manifest))
    return f"signature.dsse.json: {name} is not what was signed"


def change_the_committed_seed(pack: Path) -> str:
    file = pack / "commitments/audit.json"
    file.write_text(file.read_text().replace("7123", "7124"))
    fit_the_manifest(pack, "commitments/audit.json")
    return "The commitment of audit: its hash does not fit its content"


def change_a_byte_of_the_page(pack: Path) -> str:
    (pack / "evidence.html").write_bytes((pack / "evidence.html").read_bytes() + b" ")
    return "evidence.html was changed"


def change_the_signature(pack: Path) -> str:
    file = pack / "signature.dsse.json"
    envelope = json.loads(file.read_text())
    payload = json.loads(base64.b64decode(envelope["payload"]))
    payload["subject"].pop()
    envelope["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
    file.write_text(json.dumps(envelope))
    return "the signature does not hold"


def remove_the_signature(pack: Path) -> str:
    (pack / "signature.dsse.json").unlink()
    return "nobody has signed the pack"


@pytest.mark.parametrize(
    "change",
    [
        change_a_grade,
        change_a_grade_and_its_hashes,
        change_the_committed_seed,
        change_a_byte_of_the_page,
        change_the_signature,
        remove_the_signature,
    ],
)
def test_what_was_changed_is_named(shell: Shell, third_party: Path, change: Callable[[Path], str]):
    expected = change(third_party / "pack")

    code, said = check(shell, third_party)

    assert code == 7
    assert expected in said


def test_a_pack_signed_by_another_key_is_refused(shell: Shell, third_party: Path):
    assert shell("evidence", "key", third_party / "other.key") == 0

    found = verify(third_party / "pack", key=third_party / "other.pub")

    assert any("made by another key" in each for each in found.faults)


def test_a_pack_that_is_there_is_never_replaced(shell: Shell, tmp_path: Path):
    (tmp_path / "plan.yaml").write_text(PLAN.format(seed=1))
    shell("run", "--config", "plan.yaml", "--out", "runs/one")
    assert shell("evidence", "pack", "runs/one", "--no-pdf") == 0
    before = {path: path.read_bytes() for path in (tmp_path / "evidence-one").rglob("*") if path.is_file()}

    again = shell("evidence", "pack", "runs/one", "--no-pdf")

    assert again == 2
    assert "The folder evidence-one is not empty, and nothing is overwritten; name a new one with --out." in shell.err
    assert before == {path: path.read_bytes() for path in (tmp_path / "evidence-one").rglob("*") if path.is_file()}


def test_a_pack_that_fails_leaves_no_folder_in_the_way(shell: Shell, tmp_path: Path):
    (tmp_path / "plan.yaml").write_text(PLAN.format(seed=1))
    shell("run", "--config", "plan.yaml", "--out", "runs/one")
    (tmp_path / "bad").write_bytes(b"")

    assert shell("evidence", "pack", "runs/one", "--no-pdf", "--out", "pack", "--sign", "bad") == 2
    assert not (tmp_path / "pack").exists()
    assert shell("evidence", "pack", "runs/one", "--no-pdf", "--out", "pack") == 0
    assert str(Path("pack/evidence.html")) in shell.out.splitlines()


def test_a_run_that_was_not_committed_to_is_not_packed(shell: Shell, tmp_path: Path):
    (tmp_path / "plan.yaml").write_text(PLAN.format(seed=1))
    shell("evidence", "commit", "plan.yaml")
    (tmp_path / "plan.yaml").write_text(PLAN.format(seed=2))
    shell("run", "--config", "plan.yaml", "--out", "runs/other")

    code = shell("evidence", "pack", "runs/other", "--no-pdf", "--commitment", "commitment.json")

    assert code == 2
    assert "does not commit to other: the plan is not that of the run" in shell.err
    assert "the seeds are not those of the run" in shell.err


@pytest.mark.parametrize("content", [b"", b"{}", b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_or_commitment_is_one_sentence(shell: Shell, tmp_path: Path, content: bytes):
    (tmp_path / "bad").write_bytes(content)
    (tmp_path / "plan.yaml").write_text(PLAN.format(seed=1))
    shell("run", "--config", "plan.yaml", "--out", "runs/one")

    assert shell("evidence", "pack", "runs/one", "--no-pdf", "--sign", "bad") == 2
    assert shell.err.count("\n") == 1
    assert shell("evidence", "pack", "runs/one", "--no-pdf", "--commitment", "bad") == 2
    assert shell.err.count("\n") == 1


def test_without_the_package_a_signature_is_not_called_checked(third_party: Path, monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("evenhand.evidence.signed.import_module", missing)
    found = verify(third_party / "pack")

    assert not found.faults
    assert not any("signed" in each for each in found.shown)
    assert any("it was not checked" in each for each in found.not_shown)
