"""``placegap place``: one model, one plan, its value and how far it can be from optimal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from placegap.experiments.cli.options import (
    JsonOption,
    ModelOptions,
    ModuleOption,
    ParamOption,
    TimedOptions,
    export_option,
    inputs_of,
    load_instance,
    model_option,
    objective_option,
    output_option,
    parse_pairs,
    search_option,
    source_of,
)
from placegap.experiments.running.pool import held, stop_status
from placegap.experiments.running.rules import Rules
from placegap.experiments.show.figures import format_gap, format_value
from placegap.experiments.show.objectives.base import words_of
from placegap.experiments.show.place_report import (
    certificate_line,
    certificate_object,
    claim_objects,
    device_table,
    opinion_object,
    print_result,
    result_object,
)
from placegap.experiments.show.rendering import output, print_json, spinner, warn
from placegap.experiments.show.search_log import both, check_plot, live_line, search_log
from placegap.instances.files.document import Document, save_document, write_json
from placegap.instances.files.output_files import attempt, is_file, reserve_outputs, write_text
from placegap.instances.files.plan_file import describe_plan, plan_object
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.problem.modules import (
    Granularity,
    holds_ranges,
    is_expert,
    row_of_layers,
    with_granularity,
)
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import is_traced
from placegap.solvers.core.clock import USUAL_S
from placegap.solvers.core.registry import find_method, parse_params
from placegap.solvers.core.result import Bound, fault_words, relative_gap
from placegap.solvers.solving.known_bounds import Claim, claims_of, recorded_bounds, refuted_by

if TYPE_CHECKING:
    from placegap.experiments.running.exporting import ModulePrice, Said
    from placegap.experiments.running.placing import Attempt
    from placegap.instances.certificates.certificate_file import Certificate
    from placegap.instances.exporters.lines import LineClass
    from placegap.solvers import Result
    from placegap.solvers.chains.best_line import BestLine
    from placegap.solvers.solving.second_opinion import Opinion
    from placegap.solvers.solving.tensor_split import TensorPlan


NO_PLAN = 1
NO_CERTIFICATE = (
    "none can be written for latency_subgraphs and pipeline_iteration, for ops that fit on no"
    " device, and for hybrid plans with --bubble or with more ideals than the checker accepts"
)
LONGEST_S = 10**7


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(ModelOptions, TimedOptions):
    rules: Rules
    method: Annotated[
        str | None,
        search_option(
            "--method",
            help="See 'placegap methods'. Default: auto, the best exact method for this kind of"
            " problem, with a search in parallel.",
        ),
    ] = None
    module: ModuleOption = None
    param: ParamOption = None
    solver: Annotated[
        str | None,
        search_option(
            "--solver",
            metavar="NAME",
            help="The solver of a --method that solves a MIP: highs, scip, or one that Pyomo finds,"
            " such as gurobi, cplex, xpress, cbc or glpk (default: highs).",
        ),
    ] = None
    time_limit: Annotated[
        float, search_option("--time-limit", metavar="S", help="Seconds for the method.")
    ] = USUAL_S
    gap: Annotated[
        float, search_option("--gap", help="Stop at this relative gap; 0.05 is 5 %.")
    ] = 0.0
    seed: Annotated[int, search_option("--seed", min=0, help="Random seed.")] = 0
    at_most: Annotated[
        float | None,
        objective_option(
            "--at-most",
            metavar="TIMES",
            help="max_context: no load is above TIMES x the optimal max_load.",
        ),
    ] = None
    coarsen: Annotated[
        str | None,
        model_option(
            "--coarsen",
            metavar="TRANSFORM",
            help="Coarsen the model, place it, and map the plan back; see 'placegap coarsen'.",
        ),
    ] = None
    coarsen_param: Annotated[
        list[str] | None,
        model_option("--coarsen-param", metavar="KEY=VALUE", help="Its parameter; repeatable."),
    ] = None
    out: Annotated[
        Path | None, output_option("-o", "--output", help="Write the plan to this file.")
    ] = None
    export: Annotated[
        list[str] | None,
        export_option(
            "--export",
            metavar="KIND=FILE",
            help="Write the plan, or the best one that its format can express, for another tool:"
            " llamacpp, exllama, ollama, vllm, sglang, ktransformers, device_map, torchtitan,"
            " megatron, pipelining, onnx, dnn-partitioning, csv or ranges. Repeatable.",
        ),
    ] = None
    granularity: Annotated[
        Granularity | None,
        model_option(
            "--granularity",
            help="Unit that is never split over devices",
            show_default="op, or the unit that --export needs",
        ),
    ] = None
    price_layers: Annotated[
        bool,
        search_option(
            "--price-layers",
            help="With layers or modules kept whole: also place op by op, in a third of the time"
            " limit, and print what keeping them whole costs.",
        ),
    ] = False
    tensor_split: Annotated[
        bool,
        search_option(
            "--tensor-split",
            help="makespan: also try groups of cards that share each layer; takes up to the time"
            " limit again.",
        ),
    ] = False
    write: Annotated[
        Path | None,
        export_option(
            "--write",
            metavar="FILE",
            help="Write the method's MIP to this .mps or .lp file (or .gz of it); do not solve it.",
        ),
    ] = None
    certificate: Annotated[
        Path | None,
        output_option(
            "--certificate",
            metavar="FILE",
            help="Write a bound that 'placegap verify --certificate' checks without a solver; takes"
            " up to a quarter of the time limit in addition, at most a minute.",
        ),
    ] = None
    second_opinion: Annotated[
        bool,
        search_option(
            "--second-opinion",
            help="Another solver or method checks the result in the last third of the time limit;"
            " exit status 1 if the two contradict each other.",
        ),
    ] = False
    start: Annotated[
        str | None,
        search_option(
            "--start", metavar="PLAN", help="A plan file to start from; the result is no worse."
        ),
    ] = None
    log: Annotated[
        Path | None,
        output_option(
            "--log",
            metavar="FILE",
            help="Write each better plan and bound as a JSON line: seconds, value, bound, source.",
        ),
    ] = None
    plot: Annotated[
        Path | None,
        output_option(
            "--plot", metavar="FILE", help="Draw value and bound over time (.png or .svg)."
        ),
    ] = None
    as_json: JsonOption = False

    @property
    def reports(self) -> bool:
        """Whether progress is reported."""
        return not (self.quiet or self.as_json)


class Wanted(NamedTuple):
    """What some of the options say: files by kind of export, what stays whole, parameters."""

    exports: dict[str, Path]
    whole: Granularity
    params: dict[str, str]
    coarsen_params: dict[str, str]


class Extras(NamedTuple):
    """What is printed beside a result."""

    opinion: Opinion | None = None
    certificate: Certificate | None = None
    price: ModulePrice | None = None
    claims: tuple[Claim, ...] = ()
    lines: Mapping[LineClass, BestLine] = MappingProxyType({})
    said: tuple[Said, ...] = ()
    shares: TensorPlan | None = None
    whole: Granularity = "op"


def place_command(options: PlaceOptions) -> None:
    """Place a model on a cluster: a plan, its value, and a bound if the method proves one."""
    from placegap.experiments.running.placing import (
        FIRST_SHARE,
        given_plan,
        plan_file_at,
        with_load_limit,
    )

    wanted = _checked(options)
    fine = load_instance(source_of(options), reports=options.reports)
    together = False
    if options.granularity is None and any(op.modes for op in fine.graph.ops):
        wanted = wanted._replace(whole="op")  # ops with modes are layers
    if holds_ranges(fine, options.rules.objective):  # its layers are what there is to place
        fine = row_of_layers(fine, options.rules.objective)
        wanted = wanted._replace(whole="op")
    if wanted.whole == "experts" and not any(map(is_expert, fine.graph.ops)):
        wanted = wanted._replace(whole="layer")
    if wanted.exports:
        from placegap.experiments.running.exporting import able_exports, joins_ends

        together = joins_ends(list(wanted.exports))
    instance = with_granularity(fine, wanted.whole, join_ends=together)
    stated = None if options.start is None else plan_file_at(options.start)
    rules = None if stated is None else stated.semantics
    first = _first_attempt(options, wanted, fine, instance, rules)
    if wanted.exports:
        able = able_exports(wanted.exports, instance, first.semantics, options.model)
        wanted = wanted._replace(exports=able)
    if options.at_most is not None:
        with spinner("looking for the least load", reports=options.reports):
            first, limit = with_load_limit(first, options.at_most)
        warn(limit)
    known = None
    if options.start is not None:
        with spinner(f"reading {options.start}", reports=options.reports):
            known = given_plan(instance, first.semantics, options.start)
        first = replace(first, incumbent=known.plan)
    plan_files = {} if stated is None else {str(options.start): stated.bound}
    claims = tuple(claims_of(fine, first.semantics, options.model, plan_files))
    if options.write is not None:
        _write_model(options, instance, first)
        return
    result = _placed(options, wanted, (fine, instance), first, known, claims)
    opinion = written = price = shares = None
    lines: Mapping[LineClass, BestLine] = {}
    try:
        if wanted.exports or wanted.whole in ("layer", "experts"):
            from placegap.experiments.running.exporting import with_room

            with spinner("searching for the best options", reports=options.reports):
                lines, result = with_room(fine, instance, result, list(wanted.exports))
        if options.second_opinion:
            result, opinion = _ask_second(
                options, instance, replace(first, time_limit_s=options.time_limit), result
            )
        if options.certificate is not None:
            written = _certify(options, instance, result, options.certificate)
        if options.price_layers and instance is not fine:
            from placegap.experiments.running.exporting import price_of_modules

            with spinner(f"placing {fine.name} op by op", reports=options.reports):
                rest = replace(first, time_limit_s=options.time_limit * (1 - FIRST_SHARE))
                price = price_of_modules(fine, rest, result, wanted.whole)
        if options.tensor_split:
            from placegap.solvers.solving.tensor_split import best_tensor_plan

            with spinner(f"sharing layers of {fine.name}", reports=options.reports):
                shares = best_tensor_plan(fine, first.semantics, wanted.whole, options.time_limit)
    finally:  # whatever fails now, the result may have taken an hour
        extras = Extras(opinion, written, price, claims, lines, (), shares, wanted.whole)
        _deliver(options, wanted, fine, result, extras)
    if opinion is not None and opinion.verdict == "CONTRADICTS":
        warn("two methods contradict each other: one of them is wrong; please report this model")
        raise typer.Exit(NO_PLAN)
    from placegap.experiments.running.kept_proofs import keep_proof

    keep_proof(result)
    if result.plan is None and result.status != "bound":
        raise typer.Exit(NO_PLAN)


def _checked(options: PlaceOptions) -> Wanted:
    """Refuse options that exclude each other before anything is read."""
    if not (0 < options.time_limit <= LONGEST_S or options.time_limit == math.inf):
        raise InputError(f"--time-limit must be positive, and at most {LONGEST_S} or inf")
    if not 0 <= options.gap < 1:
        raise InputError(f"--gap is a share, from 0 to below 1: 5 % is 0.05 (got {options.gap:g})")
    exports, whole = dict[str, Path](), options.granularity or "op"
    if options.tensor_split:
        if options.granularity in ("op", "module"):
            raise InputError("--tensor-split is about layers: leave out --granularity")
        whole = options.granularity or "layer"
    if options.export:
        from placegap.experiments.running.exporting import needed_granularity, parse_exports

        exports = parse_exports(options.export)
        whole = needed_granularity(options.granularity, list(exports))
    if options.price_layers and whole == "op":
        raise InputError("--price-layers is about layers: add --granularity layer")
    written = (options.out, options.write, options.log, options.plot, options.certificate)
    finer = finer_file(options.out) if options.out is not None and is_file(options.out) else None
    reserve_outputs(*written, *exports.values(), finer, inputs=inputs_of(options))
    check_plot(options.plot)
    given = "-o" if options.out is not None else "--export" if exports else ""
    if given and options.method is not None and find_method(options.method).claim == "bound":
        raise InputError(f"{options.method} computes only bounds, so there is no plan for {given}")
    if options.certificate is not None and whole != "op":
        raise InputError(
            f"--certificate is about single ops, and the plan is made of {whole}s; add"
            " --granularity op, or leave out --certificate"
        )
    if options.write is not None and (given or options.certificate is not None):
        lacks = f"plan for {given}" if given else "bound for --certificate"
        raise InputError(f"--write only writes the model, so there is no {lacks}")
    named = [] if options.solver is None else [f"solver={options.solver}"]
    params = parse_pairs([*(options.param or ()), *named])
    coarsen_params = parse_pairs(options.coarsen_param or (), "--coarsen-param")
    if options.coarsen is None and coarsen_params:
        raise InputError("--coarsen-param needs a transform (--coarsen)")
    if options.coarsen is not None:
        from placegap.instances.transforms.table import find_transform

        find_transform(options.coarsen, coarsen_params)
    if options.method is not None:
        parse_params(find_method(options.method), params)
    if options.write is not None:
        from placegap.solvers.models.export import formulation_of, model_format

        model_format(options.write)
        formulation_of(options.method or "auto")  # the default has none
    return Wanted(exports, whole, params, coarsen_params)


def _first_attempt(
    options: PlaceOptions,
    wanted: Wanted,
    fine: Instance,
    instance: Instance,
    stated: Semantics | None,
) -> Attempt:
    """The run that the options state; `stated` are the rules of the plan to start from."""
    from placegap.experiments.running.placing import FIRST_SHARE, Attempt, choose_semantics
    from placegap.solvers.solving.run_method import DEFAULT_METHOD

    is_own = is_traced(options.model) or instance is not fine  # a worker would trace it once more
    prices = options.price_layers and instance is not fine
    shares = FIRST_SHARE if options.second_opinion or prices else 1.0
    chosen = choose_semantics(
        options.rules,
        instance,
        options.method,
        wanted.params,
        stated=stated,
        is_final=options.coarsen is None,
    )
    if chosen.note:
        warn(chosen.note)
    if options.tensor_split and chosen.semantics.objective != "makespan":
        raise InputError("--tensor-split needs --objective makespan; add it")
    recorded = () if instance is fine else tuple(recorded_bounds(fine, chosen.semantics))
    return Attempt(
        source=instance if is_own else source_of(options),
        semantics=chosen.semantics,
        method=options.method or DEFAULT_METHOD,
        params=wanted.params,
        time_limit_s=options.time_limit * shares,
        gap=options.gap,
        seed=options.seed,
        coarsen=options.coarsen,
        coarsen_params=wanted.coarsen_params,
        recorded=recorded,
    )


def _placed(
    options: PlaceOptions,
    wanted: Wanted,
    instances: tuple[Instance, Instance],
    first: Attempt,
    known: Result | None,
    claims: tuple[Claim, ...],
) -> Result:
    """The result of the method; a stop signal reports the best one so far and ends the command."""
    from placegap.experiments.running.placing import Stopped, place

    fine, instance = instances
    try:
        what = f"placing {instance.name}, {first.semantics.label}"
        with (
            live_line(what, quiet=not options.reports) as show,
            search_log(options.log, options.plot, what) as on_progress,
        ):
            result, warnings = place(first, start=known, on_progress=both(show, on_progress))
    except Stopped as stopped:
        if stopped.best is None or stopped.best.plan is None:
            raise KeyboardInterrupt from None
        _deliver(options, wanted, fine, stopped.best, Extras(claims=claims, whole=wanted.whole))
        warn(f"stopped; the plan is {stopped.best.method}'s")
        raise typer.Exit(stop_status()) from None
    except RuntimeError as error:
        warn(f"no plan: {error}")
        raise typer.Exit(NO_PLAN) from None
    for sentence in warnings:
        warn(sentence)
    return result


def _deliver(
    options: PlaceOptions, wanted: Wanted, fine: Instance, result: Result, extras: Extras
) -> None:
    """Write and print what was found; a signal that comes now does not cut it short."""
    with held():
        try:
            if wanted.exports:
                from placegap.experiments.running.exporting import write_exports

                shared = _write_shares(extras.shares, result, wanted.exports)
                rest = {kind: path for kind, path in wanted.exports.items() if kind not in shared}
                notes, said = write_exports(fine, result, rest, options.model, extras.lines)
                extras = extras._replace(said=(*said, *shared.values()))
                for sentence in notes:
                    warn(sentence)
        finally:
            report(options, fine, result, extras)


def _write_shares(
    shares: TensorPlan | None, result: Result, exports: Mapping[str, Path]
) -> dict[str, Said]:
    """Write what tools run whose cards share layers, where that is faster; by kind of export."""
    from placegap.experiments.running.exporting import Said
    from placegap.solvers.solving.tensor_split import shares_texts

    if shares is None or (result.value_ns is not None and result.value_ns <= shares.value_ns):
        return {}
    found = dict[str, Said]()
    for kind, text in shares_texts(shares).items():
        if kind in exports:
            with attempt(exports[kind]):
                write_text(f"{text}\n", exports[kind])
            found[kind] = Said(kind, text, shares.value_ns, Bound(shares.bound_ns))
    return found


def _write_model(options: PlaceOptions, instance: Instance, first: Attempt) -> None:
    """``--write``: the MIP of a method in a file, unsolved, and a line that says so."""
    from placegap.solvers.models.export import write_model

    assert options.write is not None
    (seen, semantics), method = coarsened(instance, first), first.method
    with spinner(f"building the model of {method} for {seen.name}", reports=options.reports):
        written = write_model(
            seen,
            semantics,
            method,
            first.params,
            options.write,
            time_limit_s=first.time_limit_s,
            seed=first.seed,
            incumbent=None if first.coarsen else first.incumbent,
        )
    if options.as_json:
        content = {
            "instance": seen.name,
            "semantics": semantics.model_dump(mode="json"),
            "method": method,
            "path": str(options.write),
            "rows": written.rows,
            "columns": written.columns,
            "unit_ns": written.unit_ns,
            "start_ns": written.start_ns,
        }
        print_json(content)
        return
    size = f"{written.rows} rows, {written.columns} columns"
    output().print(
        f"{options.write}: {method}, {size}; 1 unit of the objective is {written.unit_ns:.15g} ns",
        soft_wrap=True,
    )


def coarsened(instance: Instance, attempt: Attempt) -> tuple[Instance, Semantics]:
    """The instance and semantics that the method of an attempt gets."""
    if attempt.coarsen is None:
        return instance, attempt.semantics
    from placegap.instances.problem.additive_memory import relax_memory
    from placegap.instances.transforms.table import coarsen

    instance, semantics = relax_memory(instance, attempt.semantics)
    found = coarsen(instance, attempt.coarsen, attempt.coarsen_params, semantics)
    return found.merge.coarse, semantics


def _certify(
    options: PlaceOptions, instance: Instance, result: Result, path: Path
) -> Certificate | None:
    """Certify as much of the bound as possible; a stop signal leaves the result as it is."""
    from placegap.experiments.running.certifying import write_certificate

    seen = instance if result.split is None else result.split.fine
    found = None
    try:
        with (
            spinner(f"certifying a bound of {instance.name}", reports=options.reports),
            attempt(path) as failed,
        ):
            found = write_certificate(seen, result, path, options.time_limit)
    except KeyboardInterrupt:
        warn("stopped: there is no certificate")
    else:
        if found is None and not failed:
            warn(f"no certificate: {NO_CERTIFICATE}")
    return found


def _ask_second(
    options: PlaceOptions, instance: Instance, first: Attempt, result: Result
) -> tuple[Result, Opinion]:
    from placegap.experiments.running.placing import ask_second
    from placegap.solvers.solving.second_opinion import Opinion

    try:
        with spinner(f"a second opinion on {instance.name}", reports=options.reports):
            return ask_second(instance, first, result)
    except KeyboardInterrupt:
        return result, Opinion("none", "stopped")


def report(options: PlaceOptions, instance: Instance, result: Result, extras: Extras) -> None:
    """Print a result, explain a missing plan, write the plan."""
    # A plan of a finer instance (operator splitting) is shown and written with that instance. A
    # plan that cannot be written is printed as it would stand in its file.
    out, whole, lost = options.out, instance, None
    opinion, certificate, price, claims, _, said, shares, kept = extras
    notes = () if options.tensor_split else words_of(result.semantics).optimum(instance, result)
    if result.split is not None:
        instance = result.split.fine
    if out is not None and result.plan is not None and result.evaluation is not None:
        # first: stdout may be full, too
        lost = _write_plan(instance, result, result.plan, out, certificate)
    if options.as_json:
        from placegap.experiments.running.sources import open_questions

        content = result_object(instance, result, kept)
        content["notes"] += (*notes, *open_questions(instance.graph, options.model))
        if opinion is not None:
            content["second_opinion"] = opinion_object(opinion, result.semantics)
        if certificate is not None:
            content["certificate"] = certificate_object(certificate)
        if kept != "op":
            content["granularity"] = {"granularity": kept} if price is None else price_object(price)
        content["exports"] = [said_object(each) for each in said]
        if options.tensor_split:
            from placegap.experiments.show.tensor_shares import shares_object

            content["tensor_split"] = shares_object(shares)
        content["claims"] = claim_objects(claims, result.semantics)
        if lost is not None:
            content["plan"] = lost
        print_json(content)
    else:
        print_result(output(), instance, result, claims, kept)
        if opinion is not None:
            output().print(f"second  {opinion.verdict}: {opinion.sentence}")
        if certificate is not None:
            output().print(f"certified {certificate_line(certificate)}")
        if kept != "op":
            costs = "kept whole; --price-layers prints what that costs"
            output().print(f"{kept:<7} {costs if price is None else price_line(price)}")
        for each in said:
            for line in said_lines(each, result, kept):
                output().print(line, soft_wrap=True)
        for sentence in notes:
            output().print(f"note    {sentence}")
        if options.tensor_split:
            from placegap.experiments.show.tensor_shares import shares_lines

            if shares is not None and shares.result.evaluation is not None:
                output().print(
                    device_table(shares.instance, shares.result.evaluation, result.semantics)
                )
            for line in shares_lines(shares, result.value):
                output().print(line)
        if lost is not None:
            print_json(lost)
    for sentence in (*map(fault_words, result.faults), *refuted_by(result, whole, claims)):
        warn(sentence)
    if result.plan is None or result.evaluation is None:
        if result.status == "bound":
            warn(f"{result.method} computes only bounds, no plans")
        else:
            warn(f"{result.instance}: no feasible plan")  # the message says why


def _write_plan(
    instance: Instance, result: Result, plan: Plan, out: Path, certificate: Certificate | None
) -> dict[str, Any] | None:
    """Write the plan, and the finer instance that it is one of; what of the plan is not written."""
    from placegap.experiments.running.certifying import bound_to_keep

    named = describe_plan(instance, plan, result.semantics, result.method, value=result.value)
    content = plan_object(named, bound_to_keep(instance, result, certificate))
    with attempt(out) as failed:
        write_json(content, out)
    if result.split is not None:
        with attempt(finer_file(out)):
            save_document(Document.of(instance), finer_file(out))
            warn(f"the plan is for the split instance, which is written to {finer_file(out)}")
    return content if failed else None


def finer_file(plan: Path) -> Path:
    """Where the instance of a plan goes, if the method has split ops."""
    return plan.with_name(f"{plan.name.removesuffix('.json')}.instance.json.gz")


def price_object(price: ModulePrice) -> dict[str, Any]:
    """What ``--json`` prints of a plan of whole modules."""
    return {
        "granularity": price.granularity,
        "op_value_ns": price.fine_value_ns,
        "op_bound_ns": price.fine_bound_ns,
        "price_at_most": price.at_most,
    }


def price_line(price: ModulePrice) -> str:
    """What whole modules cost."""
    unit = price.semantics.unit if price.semantics is not None else "ns"
    beyond, change = ("is below", "less") if unit == "ns" else ("has more than", "more")
    fine, share = format_value(price.fine_value_ns, unit), price.at_most
    if price.fine_value_ns == price.value_ns == price.fine_bound_ns:
        return "kept whole, at no cost: no plan that splits them is better"
    if share is None or price.fine_bound_ns is None:
        return f"kept whole; splitting would give {fine}"
    if price.fine_bound_ns == price.fine_value_ns:
        return f"kept whole; the best split gives {fine}, {format_gap(share)} {change}"
    bound = format_value(price.fine_bound_ns, unit)
    return (
        f"kept whole; splitting would give {fine}, and no plan {beyond} {bound},"
        f" {format_gap(share)} {change}"
    )


def said_object(said: Said) -> dict[str, Any]:
    """What ``--json`` prints of an export."""
    bound = said.bound
    return {
        "kind": said.kind,
        "text": said.text,
        "value_ns": said.value_ns,
        "bound_ns": None if bound is None else bound.value,
        "gap": relative_gap(said.value_ns, None if bound is None else bound.value),
    }


def said_lines(said: Said, result: Result, whole: Granularity) -> Iterator[str]:
    """What a tool runs, its gap among the plans that its format expresses, and what that costs."""
    # The result is of plans that keep modules, layers or experts whole, or single ops.
    from placegap.experiments.show.words import WHOLES

    rules = result.semantics
    gap = relative_gap(said.value_ns, None if said.bound is None else said.bound.value)
    proven = "its gap is not known" if gap is None else f"gap {format_gap(gap)} for this format"
    proven = "optimal for this format" if gap == 0 else proven
    yield f"export  {said.kind} {said.text}: {format_value(said.value_ns, rules.unit)}, {proven}"
    costs = "the same as the plan above"
    if result.value_ns and result.value_ns != said.value_ns:
        costs = f"{100 * (said.value_ns / result.value_ns - 1):+.1f} % compared with the plan above"
    least = relative_gap(said.value_ns, result.bound_value)
    if least and least > 0:
        bound, of = format_value(result.bound_value or 0, rules.unit), WHOLES.get(whole)
        plan = "no plan" if of is None else f"no plan of {of}"
        costs += f"; {plan} is below {bound}, {format_gap(least)} less"
    yield f"{'':<7} {costs}"
