"""``placegap cite`` and ``record``: what a paper cites, and what the corpus should keep."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Annotated

import typer

from placegap.experiments.cli.options import BROKEN_RULES, ModuleOption
from placegap.experiments.show.rendering import spinner, warn
from placegap.instances.problem import BestKnown
from placegap.instances.problem.part import Provenance
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import data_path
from placegap.instances.reading.printable import json_text, printable

RELEASED = "2026-11-29"  # of this version; CITATION.cff says the same

# Whose instances they are, by words of their provenance.
SOURCES = {
    "dnn-partitioning": "tarnawski2020",
    "generate tarnawski:": "tarnawski2020",
    "generate moirai:": "zhang2023",
    "generate celeritas:": "xu2022",
    "generate fd-dps:": "zeng2022",
    "piper": "tarnawski2021",
    "sailor": "strati2025",
}


def cite_command(
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="A study's YAML file.")
    ] = None,
    module: ModuleOption = None,
) -> None:
    """Print BibTeX for placegap, and for the methods and instances of a study."""
    print(own_entry())
    if study is None:
        return
    from placegap.experiments.running.sources import load_source
    from placegap.experiments.studies.config import load_study
    from placegap.experiments.studies.plan import study_rows

    rows = study_rows(load_study(study), study)
    methods = {method.name: method for row in rows for method, _, _ in row.columns}
    with spinner("reading the instances"):
        found = {row.source.model: load_source(row.source).graph.provenance for row in rows}
    known, keys, more = entries(), dict[str, None](), list[str]()
    for method in methods.values():
        cited = [key for key in (one.partition(",")[0] for one in method.cites) if key in known]
        keys |= dict.fromkeys(cited)
        if not cited and method.paper not in ("", "placegap"):
            more.append(f"% {method.name}: {method.paper}")
    for name, provenance in found.items():
        key = next((key for word, key in SOURCES.items() if word in provenance.source.lower()), "")
        keys |= {key: None} if key else {}
        more += [] if key or not provenance.source else [instance_entry(name, provenance)]
    for text in (*(known[key] for key in sorted(keys)), *more):
        print("", *map(printable, text.splitlines()), sep="\n")


def repository() -> str:
    """The address of placegap's repository, as pyproject.toml states it; empty if it has none."""
    urls = (one.split(", ") for one in metadata("placegap").get_all("Project-URL") or ())
    return next((url for name, url in urls if name == "Repository"), "")


def own_entry() -> str:
    """BibTeX of placegap itself."""
    url = f"  url = {{{repository()}}},\n" * bool(repository())
    return (
        "@software{placegap,\n  author = {{The placegap contributors}},\n"
        "  title = {placegap: placement of DNN computation graphs with proven gaps},\n"
        f"  version = {{{version('placegap')}}},\n  year = {{{RELEASED[:4]}}},\n{url}}}"
    )


def instance_entry(name: str, provenance: Provenance) -> str:
    """BibTeX of an instance without a paper."""
    key = re.sub(r"\W+", "-", name).strip("-")
    licence = f"  note = {{{provenance.licence}}},\n" if provenance.licence else ""
    return (
        f"@misc{{instance-{key},\n  title = {{Computation graph {Path(name).stem}}},\n"
        f"  howpublished = {{{provenance.source}}},\n{licence}}}"
    )


def entries() -> Mapping[str, str]:
    """BibTeX of all papers that methods and instances come from, by key."""
    text = data_path("references.bib").read_text(encoding="utf-8")
    found = re.findall(r"^(@\w+\{([^,]+),\n.*?^\})", text, re.MULTILINE | re.DOTALL)
    return {key: entry for entry, key in found}


def record_command(
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan's JSON file.")],
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="Proof of a better bound, too."),
    ] = None,
    by: Annotated[
        str, typer.Option("--by", metavar="WHO", help="Who found it; else the plan's method.")
    ] = "",
) -> None:
    """Check a plan of a shipped instance, and print its entry for the list of best known values.

    Both referees judge the plan, and the checker judges its certificates. The exit status is 1 if
    they refute it, or if neither value nor bound is better than what is recorded.
    """
    from placegap.experiments.cli.show import NO_MODEL, instance_of, load_plan_file
    from placegap.experiments.running.certifying import (
        certified_bounds,
        check_certificate,
        kept_bounds,
    )
    from placegap.instances.certificates.verification import verify
    from placegap.instances.corpus.corpus import BestEntry, known_of
    from placegap.instances.files.document import read_json
    from placegap.instances.files.plan_file import load_stated_plan

    file = load_plan_file(str(plan_file))
    if file is None:
        read_json(plan_file)  # says what is wrong with what is no JSON
        raise InputError("is not a plan; 'placegap place -o' writes one", plan_file)
    instance = instance_of(file, str(plan_file), None)
    if instance is None:
        raise InputError(NO_MODEL.partition(":")[0].format(file.instance), plan_file)
    stated = load_stated_plan(instance, plan_file)
    verdict, rules = verify(instance, stated), stated.semantics
    if not verdict.holds:
        said: list[object] = [*verdict.first.violations] or ["the two referees disagree"]
        for each in said:
            warn(f"{plan_file}: {each}")
        raise typer.Exit(BROKEN_RULES)
    bounds, why = kept_bounds(instance, rules, stated.bound)
    if certificate is not None:
        checked = check_certificate(instance, certificate)
        bounds += certified_bounds(checked, rules)
        why += () if checked.holds else (f"{certificate}: {checked.reason}",)
    for sentence in why:
        warn(sentence)
    value = verdict.first.value
    entry = {"semantics": rules, "value_ns": value, "value_origin": by or file.method}
    if bounds:
        best = max(bounds, key=lambda one: one.rank(rules))
        entry |= {"bound_ns": best.value, "bound_origin": best.origin, "rests_on": best.basis}
    names = {"graph": instance.graph.name, "cluster": instance.cluster.name}
    names["content_hash"] = instance.content_hash
    fresh = BestEntry.model_validate(names | entry)
    old = next(iter(known_of(instance, rules)), None)
    if old is None:
        warn(f"nothing is recorded of {instance.name}, {rules.label}: both referees confirm this")
    news = [] if old is None else list(_improvements(fresh, old))
    for sentence in news:
        warn(sentence)
    if old is not None and not news:
        worth = rules.text(old.value_ns or 0), rules.text(old.bound_ns or 0)
        warn("not better than what is recorded: value {}, bound {}".format(*worth))
        raise typer.Exit(BROKEN_RULES)
    fields = fresh.model_dump(mode="json", exclude_defaults=True)
    print(json_text(names | fields, indent=1))


def _improvements(new: BestKnown, old: BestKnown) -> Iterator[str]:
    """What an entry improves, in words."""
    rules, pairs = new.semantics, {"value": (new.value_ns, old.value_ns)}
    pairs["bound"] = (new.bound_ns, old.bound_ns)
    for name, (ours, theirs) in pairs.items():
        if ours is None or (theirs is not None and rules.cost(ours) == rules.cost(theirs)):
            continue
        is_less = theirs is not None and rules.cost(ours) < rules.cost(theirs)
        if theirs is None or is_less == (name == "value"):
            was = "nothing" if theirs is None else rules.text(theirs)
            yield f"a better {name}: {rules.text(ours)}, recorded is {was}"
