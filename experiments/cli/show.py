"""``placegap show`` and ``compare``: what a model or a plan is, and how two plans differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placegap.experiments.cli.options import (
    BROKEN_RULES,
    JsonOption,
    LimitOption,
    MethodOption,
    ParamOption,
    TimedOptions,
    inputs_of,
    load_instance,
    parse_pairs,
    source_of,
    warn_open,
)
from placegap.experiments.show.figures import format_ns, format_value
from placegap.experiments.show.rendering import output, plain_table, print_json, spinner, warn
from placegap.instances.files.output_files import attempt, reserve_outputs, write_text
from placegap.instances.problem.integers import format_bytes
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.clock import USUAL_S

if TYPE_CHECKING:
    from placegap.experiments.running.certifying import Proof
    from placegap.experiments.running.sources import Source
    from placegap.experiments.show.anatomy import Anatomy
    from placegap.instances.files.document import Document
    from placegap.instances.files.plan_file import PlanFile, StatedPlan
    from placegap.instances.problem import BestKnown, Instance

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Model of the plan, as for 'placegap place'; not needed for a corpus graph on a"
        " shipped cluster.",
    ),
]
NO_MODEL = (
    "the plan is for {!r}, which the corpus does not have with this content: name its model"
    " (--model) and cluster (--cluster)"
)
CHECK_S = 5.0  # seconds for the check of a certificate in a plan; 'placegap verify' has no limit


@dataclass(frozen=True, kw_only=True)
class ShowOptions(TimedOptions):
    file: Annotated[
        str, typer.Argument(metavar="INSTANCE|PLAN", help="A model, a corpus name, or a plan.")
    ]
    model: ModelOption = None
    gantt: Annotated[
        Path | None,
        typer.Option(
            "--gantt", metavar="FILE", help="Draw the timeline of the plan (.png or .svg)."
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write the plan as one HTML page, which works offline."
        ),
    ] = None
    method: MethodOption = None
    param: ParamOption = None
    time_limit: LimitOption = USUAL_S
    as_json: JsonOption = False


def show_command(options: ShowOptions) -> None:
    """Summarize a model or an instance, or explain a plan and what to change next.

    The referee evaluates the plan: the load of each device, what limits the value, the longest
    transfers, and the single moves that gain most. The exit status is 1 if the plan is infeasible.
    """
    from placegap.experiments.show.search_log import check_plot

    reserve_outputs(options.gantt, options.html, inputs=inputs_of(options))
    check_plot(options.gantt)
    plan = load_plan_file(options.file)
    if plan is None:
        given_model = source_of(options, options.file)
        only = ("gantt", "html", "model", "method", "times")
        given = [f"--{name}" for name in only if getattr(options, name) is not None]
        _show_model(given_model, options.as_json, given)
        return
    source = None if options.model is None else source_of(options)
    if source is None and options.cluster is not None:
        raise InputError("--cluster needs the plan's model, too (--model)", options.file)
    instance = instance_of(plan, options.file, source)
    if instance is None:
        _show_names(plan, options.file, options.gantt or options.html, options.as_json)
        return
    proof = _proof(options.method, options.param, options.time_limit)
    (found,) = judged(instance, [(options.file, plan)], source, proof, num_moves=5)
    _draw(found, options.gantt, options.html)
    if options.as_json:
        from placegap.experiments.show.anatomy import anatomy_object

        print_json({**plan_summary(plan), **anatomy_object(found)})
    else:
        from placegap.experiments.show.words import print_anatomy

        print_anatomy(output(), found)
    if not found.verdict.feasible:
        raise typer.Exit(BROKEN_RULES)


def _proof(method: str | None, param: list[str] | None, time_limit_s: float) -> Proof | None:
    from placegap.experiments.running.certifying import Proof
    from placegap.solvers.core.registry import find_method

    params = parse_pairs(param or ())
    if method is None:
        if params:
            raise InputError("--param needs a method (--method)")
        return None
    find_method(method)
    if not time_limit_s > 0:
        raise InputError("--time-limit must be positive")
    return Proof(method, params, time_limit_s)


def _show_model(source: Source, as_json: bool, for_plans: list[str]) -> None:
    from placegap.experiments.running.sources import check_rates, cluster_of, find_model
    from placegap.instances.files.document import Document

    with spinner(f"reading {source.model}"):
        chosen = cluster_of(source)
        check_rates(source.model, chosen)
        document = find_model(source.model, source.time_unit, source.dims, source.tracing)
        if for_plans:
            raise InputError(f"{for_plans[0]} is for plans, and this is a model", source.model)
        chosen = chosen or document.cluster
        if chosen is not None:
            document = Document.of(document.instance(chosen))
    summary = document_summary(document)
    if chosen is not None:
        from placegap.instances.problem import Makespan
        from placegap.instances.problem.explain import why_no_room

        room = why_no_room(document.instance(chosen), document.semantics or Makespan())
        if room.proven:
            summary["no_plan_fits"] = list(room.sentences)
    warn_open(document.graph, source.model)
    if as_json:
        print_json(summary)
    else:
        print_summary(summary)


def _show_names(plan: PlanFile, file: str, picture: Path | None, as_json: bool) -> None:
    """What is printed of a plan without its model."""
    need = f"{NO_MODEL.format(plan.instance)} for its timeline"
    if picture is not None:
        raise InputError(need, file)
    summary = plan_summary(plan)
    if as_json:
        print_json(summary)
    else:
        print_summary(summary)
        warn(f"{file}: {need}")


def _draw(found: Anatomy, gantt: Path | None, html: Path | None) -> None:
    if gantt is not None:
        from placegap.experiments.show.drawing import write_figure
        from placegap.experiments.show.gantt import draw_plan

        with spinner(f"drawing {gantt}"), attempt(gantt):
            write_figure(draw_plan(found), gantt)
    if html is not None:
        from placegap.experiments.show.page import plan_page

        with spinner(f"writing {html}"), attempt(html):
            write_text(plan_page(found), html)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(TimedOptions):
    first: Annotated[str, typer.Argument(metavar="PLAN", help="A plan's JSON file.")]
    second: Annotated[str, typer.Argument(metavar="PLAN", help="Another plan of the same model.")]
    model: ModelOption = None
    as_json: JsonOption = False


def compare_command(options: CompareOptions) -> None:
    """Compare two plans of a model: value, gap, what moved, and where the time goes.

    Both must state the same semantics. The exit status is 1 if one of them is infeasible.
    """
    from placegap.experiments.show.words import comparison_object, print_comparison
    from placegap.instances.files.document import read_json

    source = None if options.model is None else source_of(options)
    plans = []
    for file in (options.first, options.second):
        plan = load_plan_file(file)
        if plan is None:
            read_json(file)  # says what is wrong with what is no JSON
            raise InputError("is not a plan; 'placegap place -o' writes one", file)
        plans.append(plan)
    one, other = plans
    if one.semantics != other.semantics:
        raise InputError(
            f"the plans were made for {one.semantics.label} and {other.semantics.label}: their"
            " values cannot be compared; 'placegap verify' evaluates a plan under other rules",
            options.second,
        )
    if one.instance_hash and other.instance_hash and one.instance_hash != other.instance_hash:
        raise InputError(
            f"it is a plan for {other.instance!r}, but {options.first} is one for a different"
            f" instance, {one.instance!r}: compare plans of one model on one cluster",
            options.second,
        )
    instance = instance_of(one, options.first, source)
    if instance is None:
        raise InputError(NO_MODEL.format(one.instance), options.first)
    before, after = judged(
        instance, [(options.first, one), (options.second, other)], source, num_moves=0
    )
    if options.as_json:
        print_json(comparison_object(before, after))
    else:
        print_comparison(output(), before, after, (options.first, options.second))
    if not (before.verdict.feasible and after.verdict.feasible):
        raise typer.Exit(BROKEN_RULES)


def load_plan_file(file: str) -> PlanFile | None:
    """The plan in a file; None if the file is no plan, and is read as a model."""
    from placegap.instances.files.document import of_version, read_json
    from placegap.instances.files.plan_file import PlanFile, is_plan

    if not file.endswith(".json") and not file.endswith(".json.gz"):
        return None
    try:
        raw: Any = read_json(file)
    except InputError:
        return None  # reading it as a model gives the better message
    return of_version(PlanFile, raw, file) if is_plan(raw) else None


def instance_of(plan: PlanFile, file: str, source: Source | None) -> Instance | None:
    """The instance of a plan: the one that is named, else the one that its name says."""
    # A plan says ``MODEL@CLUSTER``, or ``MODEL`` on its own devices. If that is a graph of the
    # corpus on a cluster that ships, and its content is that of the plan, it is the instance; else
    # None.
    from placegap.experiments.running.sources import Source, is_known_cluster, is_named, load_source
    from placegap.instances.problem.modules import row_of_layers

    layers = plan.semantics.has_modes
    if source is not None:
        instance = load_instance(replace(source, layers=layers))
        instance = row_of_layers(instance, plan.semantics.objective)
        if plan.instance_hash not in ("", instance.content_hash):
            raise InputError(
                f"the plan was made for other content of {plan.instance!r} than {source.model}"
                " has here; name the model, cluster and options that it was placed with",
                file,
            )
        return instance
    model, _, cluster = plan.instance.partition("@")  # links of a cluster may follow an @, too
    if not is_named(model) or (cluster and not is_known_cluster(cluster)):
        return None
    try:
        with spinner(f"reading {model}"):
            found = load_source(Source(model, cluster or None, layers=layers))
    except InputError:  # devices of kinds that a file of the user's states
        return None
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

    What one file claims stands beside the other plans, too.
    """
    from placegap.experiments.running.certifying import kept_bounds, proven
    from placegap.experiments.running.kept_proofs import kept_proofs
    from placegap.experiments.show.anatomy import Anatomy, take_apart
    from placegap.instances.referee.evaluate import evaluate
    from placegap.instances.torch_models.options import is_traced
    from placegap.solvers.core.result import Bound
    from placegap.solvers.solving.known_bounds import (
        claims_of,
        known_bound,
        recorded_bounds,
        refuted_claims,
    )

    files = [(file, _stated(instance, file)) for file, _ in plans]
    semantics = files[0][1].semantics
    verdicts = [evaluate(instance, stated.plan, semantics) for _, stated in files]
    for (file, _), verdict in zip(files, verdicts, strict=True):
        if verdict.value is None:
            raise InputError(f"the plan cannot be executed: {verdict.violations[0].message}", file)
    values = [verdict.value for verdict in verdicts if verdict.feasible]
    with spinner("looking for a bound"):
        model = "" if source is None else source.model
        bounds = {file: stated.bound for file, stated in files}
        claims = tuple(claims_of(instance, semantics, model, bounds))
        wholes = [c.about for c in claims if c.about is not None and c.about is not instance]
        at_hand = [(Path(file).name, stated.plan) for file, stated in files]
        whole = next(
            (w for w in wholes if all(evaluate(w, p, semantics).feasible for _, p in at_hand)), None
        )
        now, said = list[Bound](), tuple[str, ...]()
        if proof is not None:
            is_here = whole is not None or source is None or is_traced(source.model)
            seen = whole or instance if is_here or source is None else source
            start = files[0][1].plan if verdicts[0].feasible else None
            now, said = proven(seen, semantics, proof, start)
        if whole is not None:  # its plans are among those of the single ops
            now += recorded_bounds(instance, semantics)
        now += kept_proofs(whole or instance, semantics)
        least = min((x for x in values if x is not None), key=semantics.cost, default=None)
        for file, stated in files:
            known, _ = known_bound(whole or instance, semantics, least, now)
            more, why = kept_bounds(whole or instance, semantics, stated.bound, known, CHECK_S)
            now += more
            said += tuple(f"{file}: {sentence}" for sentence in why)
        bound, wrong = known_bound(whole or instance, semantics, least, now)
        refuted = refuted_claims(claims, semantics, at_hand, bound)
        found = list[Anatomy]()
        for (_, content), (_, stated) in zip(plans, files, strict=True):
            with spinner(f"analysing the plan of {content.method or content.instance}"):
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
            found.append(replace(anatomy, claims=claims))
    for sentence in dict.fromkeys((*said, *wrong, *refuted)):
        warn(sentence)
    for (file, stated), anatomy in zip(files, found, strict=True):
        if stated.value not in (None, anatomy.value):
            warn(
                f"{file}: it states a value of {semantics.text(stated.value)}, but the referee"
                f" finds {semantics.text(anatomy.value)}"
            )
    return found


def _stated(instance: Instance, file: str) -> StatedPlan:
    from placegap.instances.certificates.verification import verify
    from placegap.instances.files.plan_file import load_stated_plan

    stated = load_stated_plan(instance, file)
    if stated.times is None:
        return stated
    # they may give the orders
    return replace(stated, plan=verify(instance, stated, any_content=True).plan)


def document_summary(document: Document) -> dict[str, Any]:
    """What `show` prints of a model or an instance."""
    graph, cluster = document.graph, document.cluster
    kinds = Counter(op.kind for op in graph.ops)
    summary: dict[str, Any] = {
        "name": document.name,
        "ops": len(graph.ops),
        "edges": len(graph.edges),
        "tensors": len(graph.index.tensor_producer),
        "backward_ops": sum(op.backward for op in graph.ops),
        "colocation_groups": len({op.colocation for op in graph.ops} - {None}),
        "resident_bytes": sum(op.resident_bytes for op in graph.ops),
        "parameter_bytes": sum(op.parameter_bytes for op in graph.ops),
        "flops": sum(op.flops or 0 for op in graph.ops),
        "op_kinds": dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0]))),
        "time_ns": {
            kind: sum(op.time_ns.get(kind, 0) for op in graph.ops)
            for kind in sorted({kind for op in graph.ops for kind in op.time_ns})
        },
        "semantics": None if document.semantics is None else document.semantics.label,
        "claimed": [*map(_claimed, document.best_known)],
        "source": graph.provenance.source,
        "licence": graph.provenance.licence,
        "changes": list(graph.provenance.changes),
    }
    if cluster is not None:
        summary["cluster"] = cluster.name
        summary["devices"] = [
            {"name": d.name, "kind": d.kind, "memory_bytes": d.memory_bytes, "is_host": d.is_host}
            for d in cluster.devices
        ]
        summary["links"] = len(cluster.links)
    return summary


def _claimed(known: BestKnown) -> str:
    """What a model's file claims under some rules."""
    parts = (("value", known.value_ns), ("bound", known.bound_ns))
    said = [
        f"{what} {format_value(ns, known.semantics.unit)}" for what, ns in parts if ns is not None
    ]
    return f"{known.semantics.label}: {', '.join(said)}"


def plan_summary(plan: PlanFile) -> dict[str, Any]:
    """What `show` prints of a plan without its model."""
    places = Counter(
        place for on in plan.placement.values() for place in ((on,) if isinstance(on, str) else on)
    )
    bound = plan.bound
    return {
        "plan_of": plan.instance,
        "instance_hash": plan.instance_hash,
        "semantics": plan.semantics.label,
        "method": plan.method,
        "claimed_value_ns": plan.value,
        "claimed_bound_ns": None if bound is None else bound.bound,
        "claimed_bound_by": "" if bound is None else bound.bound_origin,
        "ops": len(plan.placement),
        "ops_per_device": dict(sorted(places.items())),
        "device_order": plan.device_order is not None,
        "channel_order": plan.channel_order is not None,
    }


def print_summary(summary: dict[str, Any]) -> None:
    """The summary as a table, and its devices as another."""
    console = output()
    devices = summary.pop("devices", None)
    rows = []
    for name, value in summary.items():
        if value in (None, "", 0, [], {}):
            continue
        rows.append(
            (
                name.replace("_", " ").removesuffix(" bytes").removesuffix(" ns"),
                _summary_text(name, value),
            )
        )
    console.print(plain_table(None, ("", ""), rows))
    if devices is not None:
        memory = [d["memory_bytes"] for d in devices]
        console.print(
            plain_table(
                None,
                ("device", "kind", "memory", "host"),
                [
                    (
                        d["name"],
                        d["kind"],
                        "no limit" if m is None else format_bytes(m),
                        "host" if d["is_host"] else "",
                    )
                    for d, m in zip(devices, memory, strict=True)
                ],
            )
        )


def _summary_text(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return format_bytes(value)
    if name in ("claimed_value_ns", "claimed_bound_ns"):
        return format_value(value)
    if name == "time_ns":
        return ", ".join(f"{kind} {format_ns(time)}" for kind, time in value.items())
    if isinstance(value, dict):
        return ", ".join(f"{key} {count}" for key, count in value.items())
    if isinstance(value, list):
        return "; ".join(value)
    return "yes" if value is True else f"{value:,}" if isinstance(value, int) else str(value)
