"""`evenhand ui`: what is wrong is said before anything is served."""

from pathlib import Path


def test_a_missing_folder_is_not_made(cli, tmp_path: Path):
    missing = cli("ui", "nowhere")

    assert (missing.code, (tmp_path / "nowhere").exists()) == (2, False)
    assert "There is no folder nowhere; name the folder of the runs" in missing.err


def test_a_broken_configuration_is_a_sentence(cli, tmp_path: Path):
    (tmp_path / "evenhand.toml").write_text("[providers.x\n", encoding="utf-8")

    broken = cli("ui")

    assert broken.code == 2
    assert "evenhand.toml" in broken.err
