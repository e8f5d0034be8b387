"""The options of `evenhand papers`: those of all papers, and those that only some take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from evenhand.papers.base import PRESETS, Choice
from evenhand.papers.making import BOTH

COMMON = (
    click.option("--model", "-m", "models", multiple=True, metavar="[ROLE=]SPEC", help="The model, or one for a role."),
    click.option(
        "--limit", "-n", type=click.IntRange(1), help="Items of each kind, e.g. category (default: the paper's)."
    ),
    click.option("--builtin", is_flag=True, help="Our own data sets, with nothing to download."),
    click.option("--data", metavar="FOLDER", help="The folder of the public data sets."),
    click.option("--seed", type=int, default=0, show_default=True, help="Draws the items."),
    click.option(
        "--out",
        "-o",
        type=click.Path(path_type=Path),
        help="For page, CSV files and runs (default runs/paper-NAME-…).",
    ),
)
CHOICES: Mapping[Choice, Sequence[Any]] = {
    "presets": (
        click.option(
            "--preset",
            type=click.Choice([*PRESETS, BOTH]),
            default=BOTH,
            show_default=True,
            help="The paper's method as it is, ours, or both side by side.",
        ),
    ),
    "methods": (
        click.option(
            "--method",
            "methods",
            multiple=True,
            metavar="NAME:KEY=VALUE,…",
            help="Options of one of the paper's methods, in place of the preset's.",
        ),
    ),
    "steer": (
        click.option("--steer", metavar="SCORER", help="The scorer that steers revisions, e.g. perspective or neural."),
    ),
    "quality": (
        click.option("--quality", metavar="SPEC", help="The model that measures quality; not the one that steers."),
    ),
    "base_models": (
        click.option(
            "--base-model",
            "base_models",
            multiple=True,
            metavar="SPEC",
            help="An hf/ model without instruction tuning, e.g. hf/gpt2: a row of Self-Debias (Gen).",
        ),
    ),
    "completions": (
        click.option("--completions", type=click.IntRange(1), help="Completions per prompt (default: as the paper)."),
    ),
    "scorers": (
        click.option(
            "--scorer",
            "-s",
            "scorers",
            multiple=True,
            metavar="SPEC",
            help="A scorer of the texts, instead of the benchmark's own; for stored runs see evenhand run rescore.",
        ),
    ),
    "search": (click.option("--search", metavar="SPEC", help="Where to search (default ddgs)."),),
    "accept": (
        click.option(
            "--accept",
            type=click.FloatRange(1, 10),
            help="The judge accepts a reasoning below this bias; evenhand doctor finds the value.",
        ),
    ),
    "look": (
        click.option("--look", is_flag=True, help="Let the judge read the passage first, if evenhand doctor says so."),
    ),
    "domain": (
        click.option("--domain", is_flag=True, help="Tell the judge what to look for in the question's category."),
    ),
    "judge": (
        click.option("--judge", metavar="SPEC", help="The judge of answers: neither the model nor its teacher."),
    ),
    "trained": (
        click.option(
            "--trained",
            multiple=True,
            metavar="ARM=SPEC",
            help="A trained model: sft, rlaif, rldf, rldf_sr, rldf_ts, verifiable or rldf:TEACHER.",
        ),
    ),
    "pairs": (
        click.option("--pairs", metavar="FOLDER", help="The pairs that it was trained on; asks what they hold out."),
    ),
    "bias": (click.option("--bias", metavar="NAMES", help="Types of bias, with commas (default: all)."),),
    "compared": (
        click.option(
            "--compared",
            type=click.IntRange(1),
            metavar="N",
            help="Pairs of identities compared side by side in each scenario, drawn by the seed (default: all 13).",
        ),
    ),
    "training": (
        click.option("--train", is_flag=True, help="First make debates, pairs and models, as far as they are missing."),
        click.option(
            "--teacher",
            "teachers",
            multiple=True,
            metavar="SPEC",
            help="A model that debates in the teacher-student mode; further ones fill Table 5.",
        ),
        click.option(
            "--generate", is_flag=True, help="Have the teacher, or the model, write topics up to --set debate.topics=N."
        ),
        click.option(
            "--train-seeds",
            metavar="SEEDS",
            help="A training for each seed, e.g. 1,2,3; tables then show mean ± SD.",
        ),
        click.option(
            "--per-type", is_flag=True, help="Train on each type of bias alone, as the paper (default: pooled)."
        ),
        click.option(
            "--ablate",
            multiple=True,
            metavar="NAME=VALUES",
            help="A training for each of e.g. rounds=1,3,5; also roles, pairs, topics.",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="STAGE.OPTION=VALUE",
            help="An option of debate, pairs, train, sft, reward or ppo.",
        ),
    ),
}
"""The options of what only some papers take."""
