"""A plan's file and its model: named by the caller, else by the plan itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placegap.experiments.show.rendering import spinner, warn
from placegap.instances.reading.errors import InputError

if TYPE_CHECKING:
    from placegap.experiments.running.certifying import Proof
    from placegap.experiments.running.sources import Source
    from placegap.experiments.show.anatomy import Anatomy
    from placegap.instances.io.plan_file import PlanFile, StatedPlan
    from placegap.instances.problem.instance import Instance


def read_plan(file: str) -> PlanFile | None:
    """The plan in a file; None: it is none, and is read as a model.

    Raises
    ------
    InputError
        If the file says that it is a plan, and is broken.
    """
    from pydantic import ValidationError

    from placegap.instances.io.document import read_json
    from placegap.instances.io.plan_file import PlanFile, is_plan
    from placegap.instances.reading.errors import from_validation_error

    if not file.endswith(".json") and not file.endswith(".json.gz"):
        return None
    try:
        raw: Any = read_json(file)
    except InputError:
        return None  # reading it as a model gives the better message
    if not is_plan(raw):
        return None
    try:
        return PlanFile.model_validate(raw)
    except ValidationError as error:
        raise from_validation_error(error, raw, file) from None


def instance_of(plan: PlanFile, file: str, source: Source | None) -> Instance | None:
    """The instance of a plan: the one that is named, else the one that its name says.

    A plan says ``MODEL@CLUSTER``. If that is a graph of the corpus on a cluster that ships, and
    its content is that of the plan, it is the instance; else None.

    Raises
    ------
    InputError
        If the model that is named has another content.
    """
    from placegap.experiments.cli.options import read_instance
    from placegap.experiments.running.sources import Source, is_shipped_cluster, load_source
    from placegap.instances.corpus.corpus import corpus_names

    if source is not None:
        instance = read_instance(source)
        if plan.instance_hash not in ("", instance.content_hash):
            raise InputError(
                f"the plan was made for another content of {plan.instance!r} than {source.model}"
                " has here; name the model, cluster and options that it was placed with",
                file,
            )
        return instance
    model, at, cluster = plan.instance.rpartition("@")
    if not at or model not in corpus_names() or not is_shipped_cluster(cluster):
        return None
    with spinner(f"reading {model}"):
        found = load_source(Source(model, cluster))
    return found if plan.instance_hash == found.content_hash else None


def judged(
    instance: Instance,
    plans: Sequence[tuple[str, PlanFile]],
    source: Source | None,
    proof: Proof | None = None,
    *,
    num_moves: int,
) -> list[Anatomy]:
    """The anatomies of plans of one instance and one semantics, each with the best bound at hand.

    What one file says no plan is below counts for the others, too.
    """
    from placegap.experiments.show.anatomy import Anatomy, take_apart
    from placegap.instances.referee.evaluate import evaluate
    from placegap.instances.torch_models.options import is_traced
    from placegap.solvers.solving.known_bounds import (
        KnownBound,
        believed,
        counts_for,
        known_bound,
    )

    files = [(file, _stated(instance, file)) for file, _ in plans]
    semantics = files[0][1].semantics
    verdicts = [evaluate(instance, stated.plan, semantics) for _, stated in files]
    for (file, _), verdict in zip(files, verdicts, strict=True):
        if verdict.value_ns is None:
            raise InputError(f"the plan cannot be executed: {verdict.violations[0].message}", file)
    values = [verdict.value_ns for verdict in verdicts if verdict.feasible]
    with spinner("looking for a bound"):
        now, said = list[KnownBound](), tuple[str, ...]()
        if proof is not None:
            from placegap.experiments.running.certifying import proven

            seen = instance if source is None or is_traced(source.model) else source
            start = files[0][1].plan if verdicts[0].feasible else None
            now, said = proven(seen, semantics, proof, start)
        claims, left_out, wrong = believed(instance, semantics, files)
        least = min((value for value in values if value is not None), default=None)
        found, refuted = list[Anatomy](), tuple[str, ...]()
        for (_, content), (_, stated) in zip(plans, files, strict=True):
            mine = [each for each in claims if counts_for(each, instance, stated.plan, semantics)]
            stored = [claim.bound for claim in mine]
            bound, refuted = known_bound(instance, semantics, least, now, stored)
            whole = next((claim.whole for claim in mine if claim.bound == bound), None)
            with spinner(f"looking at the plan of {content.method or content.instance}"):
                anatomy = take_apart(
                    instance,
                    stated.plan,
                    semantics,
                    bound,
                    content.method,
                    num_moves=num_moves,
                    whole=whole,
                )
            assert anatomy is not None  # it has a value
            found.append(anatomy)
    for sentence in dict.fromkeys((*said, *left_out, *wrong, *refuted)):
        warn(sentence)
    for (file, stated), anatomy in zip(files, found, strict=True):
        if stated.value_ns not in (None, anatomy.value_ns):
            warn(
                f"{file}: it is said to be worth {stated.value_ns} ns and is worth"
                f" {anatomy.value_ns}"
            )
    return found


def _stated(instance: Instance, file: str) -> StatedPlan:
    from placegap.instances.io.plan_file import load_stated_plan
    from placegap.instances.io.verification import verify

    stated = load_stated_plan(instance, file)
    if stated.times is None:
        return stated
    # they may give the orders
    return replace(stated, plan=verify(instance, stated, any_content=True).plan)
