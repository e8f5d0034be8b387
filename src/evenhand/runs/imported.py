"""Makes a run of answers that another tool has collected: one small reader for each format, and one writer.

A reader yields rows. Rows whose questions a benchmark of ours knows become a run of that benchmark, so that answers of
other harnesses get the official scores. The writer is the runner: it takes answers from the file in place of
calls. Files are untrusted: sizes are bounded, and what does not fit is refused in one sentence.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, cast

import orjson

from evenhand.asking.chat import read_reply
from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.benchmarks.imported import Imported, ImportedChoices
from evenhand.core.errors import DataError, UsageError, needs_extra
from evenhand.core.files import lines, sha256
from evenhand.core.format import plural
from evenhand.core.progress import Progress
from evenhand.core.types import (
    Answer,
    Completion,
    Message,
    Outcome,
    Result,
    Role,
    Sample,
    Unscored,
    mapping,
    token_count,
)
from evenhand.data.bbq import CATEGORIES
from evenhand.data.texts import TextFile
from evenhand.reading.text import LETTERS, abstains, read_letter
from evenhand.runs.parts import LoadedArm, Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from evenhand.runs.store import FILE_NAME
from evenhand.session import Session

FIELDS = ("id", "prompt", "context", "choices", "target", "answer", "model", "group", "tokens")
"""What a column of a table can be."""
_BUILTIN = "bbq_builtin"
_KNOWN_SETS = ("bbq", _BUILTIN)
"""The benchmarks whose questions are looked for in a file."""
_MOST_BYTES = 1 << 30
"""Of a JSON file, and of all parts of an archive together."""
_MOST_IN_PART = 256 << 20
_ZSTD = 93
_LABELS = re.compile(r"\b(?:context|question|q|answer|a)\s*:", re.IGNORECASE)
_QUESTION_FIELDS = ("question", "query", "prompt", "input", "text", "instruction")


@dataclass(frozen=True, slots=True)
class Row:
    """One answer of a file, with its question."""

    id: str
    answer: int | str | None
    """The position of an option, or a text; None if the file has none."""
    prompt: str = ""
    context: str = ""
    choices: tuple[str, ...] = ()
    target: int | str | None = None
    model: str = ""
    group: str = ""
    tokens: int = 0
    messages: tuple[Message, ...] = ()
    fault: str = ""
    """Why there is no answer, as the file says."""
    example: str = ""
    """The id that the question has in BBQ, if the file names it."""
    cluster: str = ""


# --- formats ---


def _read(path: Path, columns: Mapping[str, str], model: str | None) -> tuple[str, list[Row]]:
    """The format of a file, which its content tells, and its rows; repeated questions stay in one cluster."""
    seen: Counter[tuple[str, str]] = Counter()
    found: list[Row] = []
    try:
        name, rows = _recognised(path, columns)
        for row in rows:
            named = model or row.model or path.stem
            seen[named, row.id] += 1
            number = f"#{times}" if (times := seen[named, row.id]) > 1 else ""
            found.append(replace(row, model=named, id=f"{row.id}{number}", cluster=row.cluster or row.id))
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"this is not laid out as its format demands ({error}).", file=path) from error
    if not found:
        raise DataError("there are no answers in the file.", file=path)
    return name, found


def _recognised(path: Path, columns: Mapping[str, str]) -> tuple[str, Iterator[Row]]:
    ending = path.suffix.lower()
    if not path.is_file():
        raise DataError("This is a folder, not a file." if path.is_dir() else "There is no such file.", file=path)
    if ending == ".eval":
        return "Inspect log", _inspect(*_archive(path))
    if ending == ".jsonl" and not columns:
        rows = (mapping(_loaded(line, path, number)) for number, line in lines(path) if line.strip())
        first = next(rows, mapping(None))
        both = chain([first], rows)
        if "doc" in first and ("resps" in first or "filtered_resps" in first):
            return "lm-evaluation-harness samples", _lm_eval(path, both)
        if "resourceSpans" in first or "gen_ai.operation.name" in str(first.get("attributes")):
            return "OpenTelemetry trace", _spans(both)
    if ending != ".json":
        return "table", _table(path, columns)
    return _of_json(path)


def _of_json(path: Path) -> tuple[str, Iterator[Row]]:
    if path.stat().st_size > _MOST_BYTES:
        raise DataError(f"the file has more than {_MOST_BYTES:,} bytes; import it in parts.", file=path)
    match whole := _loaded(path.read_bytes(), path):
        case {"eval": {}, "samples": [*samples]}:
            return "Inspect log", _inspect(whole["eval"], samples)
        case {"results": {"results": [*results]}} | {"results": [*results]}:
            return "promptfoo results", _promptfoo(results)
        case {"resourceSpans": _} | [{"attributes": _}, *_]:
            return "OpenTelemetry trace", _spans(_several(whole))
        case _:
            kinds = "Inspect log, promptfoo result or OpenTelemetry trace"
            raise DataError(f"this is no {kinds}; write a table as .jsonl or .csv, and use --map.", file=path)


def _loaded(content: bytes, path: Path, line: int | None = None) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        try:
            return json.loads(content)  # Python's own writes NaN, which JSON does not have
        except (ValueError, RecursionError) as error:
            raise DataError(f"not valid JSON ({error}).", file=path, line=line) from error


def _several(found: Any) -> list[Any]:
    """A list as it is, anything else as a list of it."""
    return cast("list[Any]", found) if isinstance(found, list) else [found]


def _text(found: Any) -> str | None:
    """A value as text; None where there is none, which tables of numbers write as NaN."""
    return None if found in (None, "") or (isinstance(found, float) and math.isnan(found)) else str(found)


# --- Inspect ---


def _archive(path: Path) -> tuple[Mapping[str, Any], Iterator[Mapping[str, Any]]]:
    """The header and the samples of an .eval file, which is a zip archive of JSON."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError("this is not an .eval file of Inspect; copy it again.", file=path) from error
    parts = archive.infolist()
    if any(part.compress_type == _ZSTD for part in parts):
        with needs_extra("logs of this version of Inspect", "inspect"):
            importlib.import_module("zipfile_zstd")  # teaches zipfile this compression
    if sum(part.file_size for part in parts) > _MOST_BYTES or any(part.file_size > _MOST_IN_PART for part in parts):
        raise DataError(f"unpacked, it has more than {_MOST_BYTES:,} bytes; import it in parts.", file=path)

    def read(name: str) -> Any:
        try:
            with archive.open(name) as part:  # which ends at the size that was checked
                return _loaded(part.read(_MOST_IN_PART), path)
        except DataError:
            raise
        except Exception as error:  # of zipfile, or of the library behind one of its compressions
            raise DataError(f"its part {name} cannot be read; copy the file again.", file=path) from error

    names = sorted(part.filename for part in parts if re.fullmatch(r"samples/.+\.json", part.filename))
    return read("header.json")["eval"], (read(name) for name in names)


def _inspect(about: Mapping[str, Any], samples: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    for sample in samples:
        stored, metadata, output = (mapping(sample.get(name)) for name in ("attachments", "metadata", "output"))
        choices = tuple(map(str, sample.get("choices") or ()))
        text = _text(_attached(str(output.get("completion") or ""), stored))
        read = [_position(mapping(each).get("answer"), choices) for each in mapping(sample.get("scores")).values()]
        target = next(iter(_several(sample.get("target"))), None)
        given: Any = sample.get("input") or ""
        messages = () if isinstance(given, str) else _messages(_several(given), stored)
        used = mapping(sample.get("model_usage")).values()
        yield Row(
            id=str(sample["id"]),
            answer=next((each for each in read if each is not None), text),
            prompt="\n\n".join(each.content for each in messages) if messages else _attached(str(given), stored),
            choices=choices,
            target=_position(target, choices) if choices else _text(target),
            model=str(about["model"]),
            group=str(metadata.get("category") or ""),
            tokens=sum(token_count(mapping(each).get("total_tokens")) for each in used),
            messages=messages,
            fault=str(mapping(sample.get("error")).get("message") or ""),
            example=_example(metadata) or str(sample["id"]),
        )


def _attached(text: str, stored: Mapping[str, str]) -> str:
    return stored.get(text.removeprefix("attachment://"), text) if text.startswith("attachment://") else text


def _messages(found: Iterable[Any], stored: Mapping[str, str]) -> tuple[Message, ...]:
    """The messages of a conversation as Inspect, OpenAI and OpenTelemetry write them."""
    made: list[Message] = []
    for each in found:
        content = each.get("content") or each.get("parts") or ""
        if isinstance(content, list):
            parts = cast("list[Mapping[str, Any]]", content)
            content = "\n".join(str(part.get("text") or part.get("content") or "") for part in parts)
        role = each.get("role") if each.get("role") in ("system", "user", "assistant") else "user"
        made.append(Message(cast("Role", role), _attached(str(content), stored)))
    return tuple(made)


# --- lm-evaluation-harness ---


def _lm_eval(path: Path, rows: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Samples as `--log_samples` writes them; of several filters of one answer, the first counts."""
    named = re.fullmatch(r"samples_(.+)_\d{4}-\d\d-\d\dT.*", path.stem)
    task = named[1] if named else path.stem
    model = path.parent.name.replace("__", "/") if any(path.parent.glob("results_*.json")) else ""
    kept: str | None = None
    for row in rows:
        name = str(row.get("filter") or "")
        kept = name if kept is None else kept
        if name != kept:
            continue
        doc: Mapping[str, Any] = row["doc"]
        found: Sequence[Any] = row.get("filtered_resps") or row["resps"]
        arguments = [list(each.values()) for each in row["arguments"].values()]
        context = str(doc.get("context") or doc.get("passage") or "")
        asked = next((doc[each] for each in _QUESTION_FIELDS if isinstance(doc.get(each), str)), None)
        common = Row(
            id=f"{task}-{row['doc_id']}",
            answer=None,
            prompt=asked or str(arguments[0][0]),
            context=context if asked else "",
            model=model,
            group=str(doc.get("category") or ""),
            example=_example(doc) or str(doc.get("id") or ""),
        )
        if isinstance(found[0], str):
            yield replace(common, answer=found[0], target=_text(row.get("target")))
            continue
        likelihoods = [float(each[0]) for each in found]
        choices = tuple(str(each[1]).strip() for each in arguments[: len(likelihoods)])
        target = _position(row.get("target"), choices)
        best = None if any(map(math.isnan, likelihoods)) else likelihoods.index(max(likelihoods))
        yield replace(common, answer=best, choices=choices, target=target)


# --- promptfoo ---


def _promptfoo(results: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    several = len({each.get("promptIdx") for each in results}) > 1
    for number, each in enumerate(results):
        response, test, prompt = (mapping(each.get(name)) for name in ("response", "testCase", "prompt"))
        provider: Any = each.get("provider") or ""
        named = mapping(provider).get("label") or mapping(provider).get("id") or provider
        equal = [check.get("value") for check in test.get("assert") or () if check.get("type") == "equals"]
        output: Any = response.get("output")
        place = each.get("testIdx", number)
        yield Row(
            id=f"{place}/{each['promptIdx']}" if several else str(place),
            answer=_text(output if isinstance(output, str | None) else orjson.dumps(output).decode()),
            prompt=str(prompt.get("raw") or ""),
            target=_text(equal[0]) if equal else None,
            model=str(named),
            group=str(mapping(test.get("metadata")).get("category") or ""),
            tokens=token_count(mapping(response.get("tokenUsage")).get("total")),
            fault=str(each.get("error") or ""),
            example=_example(mapping(each.get("vars"))),
            cluster=str(place),
        )


# --- OpenTelemetry ---


def _spans(traces: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """Spans of calls to models, by the conventions for generative AI; those without texts are left out."""
    for span in chain.from_iterable(map(_spans_of, traces)):
        values = _attributes(span.get("attributes"))
        for event in span.get("events") or ():
            values = {**_attributes(event.get("attributes")), **values}
        given = [
            *_listed(values.get("gen_ai.system_instructions"), "system"),
            *_listed(values.get("gen_ai.input.messages")),
        ]
        written = _listed(values.get("gen_ai.output.messages"))
        if not given or not written:
            continue
        messages = _messages(given, {})
        key = hashlib.sha256(orjson.dumps([[each.role, each.content] for each in messages])).hexdigest()[:16]
        tokens = (str(values.get(f"gen_ai.usage.{kind}_tokens")) for kind in ("input", "output"))
        yield Row(
            id=str(values.get("evenhand.sample.id") or key),
            answer="\n".join(each.content for each in _messages(written, {})),
            prompt="\n\n".join(each.content for each in messages),
            model=str(values.get("gen_ai.response.model") or values.get("gen_ai.request.model") or ""),
            tokens=sum(token_count(int(each)) for each in tokens if each.isdigit()),
            messages=messages,
        )


def _spans_of(trace: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The spans of an export by OTLP, or the span that the line itself is."""
    if "resourceSpans" not in trace:
        yield trace
    for resource in trace.get("resourceSpans") or ():
        for scope in resource.get("scopeSpans") or ():
            yield from scope.get("spans") or ()


def _attributes(found: Any) -> dict[str, Any]:
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    return {each["key"]: next(iter(each["value"].values()), None) for each in found or ()}


def _listed(found: Any, role: str = "") -> list[Any]:
    """Messages of an attribute, which holds them as JSON; parts without a role get this one."""
    values: Any = orjson.loads(found) if isinstance(found, str) else found or []
    return [{"role": role, "parts": values}] if role and values else list(values)


# --- tables ---


def _table(path: Path, columns: Mapping[str, str]) -> Iterator[Row]:
    """Rows of a table; `columns` says which column is what, by default those of the same name.

    Without an id, rows with the same question belong together: answers of several models, or repeated ones.
    """
    if wrong := [name for name in columns if name not in FIELDS]:
        raise UsageError(f"--map has no field {wrong[0]!r}; it has {', '.join(FIELDS)}.")
    named = {name: columns.get(name, name).split(",") for name in FIELDS}
    questions: dict[tuple[Any, ...], str] = {}
    for number, (line, cells) in enumerate(TextFile(path).numbered(), 1):
        for name in (*columns, "answer"):
            if missing := [each for each in named[name] if each not in cells]:
                has = f"the table has {', '.join(cells)}"
                raise DataError(
                    f"there is no column {missing[0]!r}; say --map {name}=COLUMN: {has}.", file=path, line=line
                )
        value = {name: cells.get(places[0]) for name, places in named.items()}
        several = [cells[each] for each in named["choices"]] if len(named["choices"]) > 1 else value["choices"]
        choices = _options(several)
        chosen = _position(value["answer"], choices)
        right = target = _text(value["target"])
        if choices and target and (right := _position(target, choices)) is None:
            raise DataError(f"the target {target[:80]!r} is none of the choices.", file=path, line=line)
        question = (value["context"], value["prompt"] or number, choices)
        yield Row(
            id=_text(value["id"]) or questions.setdefault(question, str(number)),
            answer=_text(value["answer"]) if chosen is None else chosen,
            prompt=str(value["prompt"] or ""),
            context=str(value["context"] or ""),
            choices=choices,
            target=right,
            model=str(value["model"] or ""),
            group=str(value["group"] or ""),
            tokens=token_count(float(value["tokens"] or 0)),
            example=_example(cells) or str(value["id"]),
        )


def _options(found: Any) -> tuple[str, ...]:
    """Options as a list, as JSON, or with | between."""
    if isinstance(found, str):
        found = (
            orjson.loads(found) if found.lstrip().startswith("[") else filter(None, map(str.strip, found.split("|")))
        )
    return tuple(map(str, found or ()))


def _position(found: Any, choices: Sequence[str]) -> int | None:
    """Which option is meant by a number from 0, a letter, or its text; None if none of them."""
    text = str(found).strip()
    if not choices or text in choices:
        return choices.index(text) if choices else None
    if re.fullmatch(r"\d{1,2}", text):
        return int(text) if int(text) < len(choices) else None
    letters = LETTERS[: len(choices)]
    return letters.index(text.upper()) if len(text) == 1 and text.upper() in letters else None


def _example(found: Mapping[str, Any]) -> str:
    """The id of a question of BBQ, by the names that its copies have for the category and the number."""
    category, number = found.get("category"), found.get("example_id")
    known = {each.casefold(): each for each in CATEGORIES}
    name = known.get(str(category).casefold())
    return f"{name}-{number}" if name and str(number).isdigit() else ""


# --- samples ---


def _questions(name: str, options: Mapping[str, Any]) -> Callable[[Row], Sample | None]:
    """Finds the sample that a row answers: of the same id and question, or of the same text and options."""
    ids: dict[str, Sample] = {}
    texts: dict[str, list[Sample]] = {}
    for sample in load_benchmark(name, **options).samples(Selection()):
        ids[sample.id] = sample
        texts.setdefault(_folded(sample.context, sample.prompt), []).append(sample)

    def find(row: Row) -> Sample | None:
        named, text = ids.get(row.example), _folded(row.context, row.prompt)
        if named is not None and _folded(named.prompt) in text:
            return named
        options = {_folded(each) for each in row.choices}
        same = [each for each in texts.get(text, ()) if not options or _people(each) <= options]
        return same[0] if len(same) == 1 else None

    return find


def _people(sample: Sample) -> set[str]:
    """The options but the one that says that it is not known, which harnesses reword."""
    unknown = sample.metadata.get("unknown")
    return {_folded(each) for place, each in enumerate(sample.choices) if place != unknown}


def _folded(*texts: str) -> str:
    return " ".join(_LABELS.sub(" ", " ".join(texts)).casefold().split()).rstrip(". ")


def _joined(rows: Sequence[Row], wanted: str | None, options: Mapping[str, Any]) -> tuple[str, list[Sample]]:
    """The benchmark that knows the questions, and the sample of each row; `imported` if none knows any."""
    likely = wanted is None and any(row.example.rpartition("-")[0] in CATEGORIES for row in rows)
    lacking: DataError | None = None
    for name in _KNOWN_SETS if likely else () if wanted in (None, _TEXTS, _CHOICES) else (wanted,):
        try:
            find = _questions(name, {} if name == _BUILTIN else options)
        except DataError as error:
            lacking = error
            continue
        found = [find(row) for row in rows]
        samples = [each for each in found if each is not None]
        if len(samples) == len(rows):
            return name, samples
        if samples or wanted is not None:
            lost = next(row for row, each in zip(rows, found, strict=True) if each is None)
            raise UsageError(
                f"{plural(len(rows) - len(samples), 'question')} of the file, such as {lost.id}, cannot be found in "
                f"{name}; remove them, or import it as it is: --benchmark {_TEXTS}."
            )
    if lacking is not None:
        raise lacking
    kinds = {bool(row.choices) for row in rows}
    if len(kinds) > 1:
        raise UsageError("Some rows have choices and others do not; import them apart.")
    return (_CHOICES if kinds == {True} else _TEXTS), [_own_sample(row) for row in rows]


_TEXTS, _CHOICES = Imported.name, ImportedChoices.name


def _own_sample(row: Row) -> Sample:
    messages = row.messages or (Message("user", "\n\n".join(filter(None, (row.context, row.prompt)))),)
    return Sample(
        id=row.id,
        kind="choice" if row.choices else "chat",
        prompt=row.prompt,
        context=row.context,
        choices=row.choices,
        target=row.target,
        cluster=row.cluster,
        metadata={"group": row.group} if row.group else {},
        messages=() if row.choices else messages,
    )


def _result(row: Row, sample: Sample) -> Result:
    """What the model answered; a choice by its text, since harnesses reorder and reword options."""
    if row.answer is None:
        return Unscored(f"the file has no answer{f': {row.fault[:200]}' if row.fault else ''}")
    if not sample.choices:
        return read_reply(Completion(str(row.answer)))
    chosen = row.answer if isinstance(row.answer, int) else read_letter(row.answer, row.choices or sample.choices)
    if chosen is None:
        return Unscored("the answer names no option", str(row.answer))
    if not row.choices:
        return Answer(sample.choices[chosen], chosen)
    text = row.choices[chosen]
    places = {_folded(each): place for place, each in enumerate(sample.choices)}
    place = places.get(_folded(text))
    if place is None:  # reworded, or named by its letter
        place = sample.metadata.get("unknown") if abstains(text) else _position(text, sample.choices)
    if place is None:
        return Unscored("the answer is none of the question's options", text)
    return Answer(sample.choices[place], place)


# --- the run ---


class _ImportRunner(Runner):
    """A runner that takes samples and answers from files in place of a benchmark and calls."""

    def __init__(self, samples: Sequence[Sample], answers: Mapping[tuple[str, str], Result], *given: Any) -> None:
        super().__init__(*given)
        self._given, self._answers = samples, answers

    def _samples(self) -> Iterator[tuple[int, Sample]]:
        return iter(enumerate(self._given, 1))

    async def _answered(self, arm: LoadedArm, sample: Sample, session: Session) -> Outcome:
        del session
        return Outcome(self._answers[arm.arm.models["base"].spec, sample.id], "imported")


async def import_files(
    files: Sequence[Path],
    out: Path,
    *,
    columns: Mapping[str, str] | None = None,
    benchmark: str | None = None,
    options: Mapping[str, Any] | None = None,
    model: str | None = None,
) -> Progress:
    """Read files and store their answers as a run; each model is an arm."""
    if not files:
        raise UsageError("Name one file or more: evenhand runs import answers.eval")
    if (out / FILE_NAME).exists():
        raise UsageError(f"{out} holds a run already; choose another --out.")
    sources = {path: _read(path, columns or {}, model) for path in files}
    rows = [row for _, found in sources.values() for row in found]
    if len({(row.model, row.id) for row in rows}) < len(rows):
        raise UsageError("Two files have answers of one model to the same questions; import them apart.")
    name, found = _joined(rows, benchmark, options or {})
    if len({(row.model, each.id) for row, each in zip(rows, found, strict=True)}) < len(rows):
        raise UsageError("A question was answered twice by one model; keep one answer of each.")
    samples = {each.id: each for each in found}
    answers = {(_spec(row.model), sample.id): _result(row, sample) for row, sample in zip(rows, found, strict=True)}
    models = list(dict.fromkeys(row.model for row in rows))
    for each in models:
        if missing := [sample for sample in samples if (_spec(each), sample) not in answers]:
            raise UsageError(
                f"{each} has no answer to {plural(len(missing), 'question')} that another model answered, such as "
                f"{missing[0]}; import them apart, and compare the runs."
            )
    plan = make_plan(
        {
            "benchmark": name,
            "benchmark_options": dict(options or {}) if name not in (_TEXTS, _CHOICES, _BUILTIN) else {},
            "models": [{"base": _model(each, sources)} for each in models],
        }
    )
    return await _ImportRunner(list(samples.values()), answers, plan, out, Settings()).run()


def _spec(model: str) -> str:
    return f"imported/{re.sub(r'[?&#]', '_', model)}"


def _model(name: str, sources: Mapping[Path, tuple[str, Sequence[Row]]]) -> dict[str, Any]:
    """The model of a plan, with where its answers are from."""
    own = {path: found for path, found in sources.items() if any(row.model == name for row in found[1])}
    about = {
        "file": ", ".join(path.name for path in own),
        "sha256": ", ".join(map(sha256, own)),
        "format": ", ".join(dict.fromkeys(each for each, _ in own.values())),
        "tokens": str(sum(row.tokens for _, rows in own.values() for row in rows if row.model == name)),
    }
    return {"spec": _spec(name), "provider": "imported", "extra": about}
