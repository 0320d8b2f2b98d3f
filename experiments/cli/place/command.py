"""``placegap place``: one model, one plan, its value and how far it can be from optimal."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placegap.experiments.cli.options import (
    ClusterOption,
    DimOption,
    JsonOption,
    Model,
    ModuleOption,
    ParamOption,
    TimesOption,
    UnitOption,
    parse_dims,
    parse_pairs,
    read_instance,
    with_rules,
    with_tracing,
)
from placegap.experiments.cli.place import coarsened, finer_file, report, write_model_file
from placegap.experiments.running.placing import Rules
from placegap.experiments.running.pool import held, stop_status
from placegap.experiments.show.rendering import check_outputs, spinner, warn
from placegap.experiments.show.search_log import both, check_plot, live_line, search_log
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.modules import Granularity, with_granularity
from placegap.instances.problem.semantics import LoadSemantics
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import TraceOptions, is_traced

if TYPE_CHECKING:
    from placegap.experiments.running.placing import Attempt
    from placegap.instances.io.certificate_file import Certificate
    from placegap.solvers import Result
    from placegap.solvers.solving.second_opinion import Opinion

NO_PLAN = 1
NO_CERTIFICATE = (
    "no bound of latency_subgraphs or pipeline_iteration has one, nor of ops that fit no device"
)
LONGEST_S = 10**7


@with_rules
@with_tracing
def place_command(
    model: Model,
    *,
    cluster: ClusterOption = None,
    rules: Rules,
    tracing: TraceOptions,
    time_unit: UnitOption = None,
    dim: DimOption = None,
    times: TimesOption = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help="See 'placegap methods'. Default: auto, which runs the method that proves most of"
            " such problems, and a search for plans beside it.",
        ),
    ] = None,
    param: ParamOption = None,
    module: ModuleOption = None,
    time_limit: Annotated[
        float, typer.Option("--time-limit", metavar="S", help="Seconds for the method.")
    ] = 60.0,
    gap: Annotated[float, typer.Option("--gap", help="Relative gap that suffices.")] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="For methods that draw numbers.")] = 0,
    coarsen: Annotated[
        str | None,
        typer.Option(
            "--coarsen",
            metavar="TRANSFORM",
            help="Place a coarser model and bring the plan back; see 'placegap coarsen'.",
        ),
    ] = None,
    coarsen_param: Annotated[
        list[str] | None,
        typer.Option("--coarsen-param", metavar="KEY=VALUE", help="Of the transform; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the plan to this file.")
    ] = None,
    export: Annotated[
        list[str] | None,
        typer.Option(
            "--export",
            metavar="KIND=FILE",
            help="Write the plan for another tool: device_map, torchtitan, megatron, vllm,"
            " pipelining, onnx, dnn-partitioning, chrome-trace or csv; repeatable.",
        ),
    ] = None,
    granularity: Annotated[
        Granularity | None,
        typer.Option(
            "--granularity",
            help="What stays on one device: ops (the default), modules, or layers (the default of"
            " exports that have nothing smaller).",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help="Write the method's MIP to this .mps or .lp file (or .gz of it); do not solve it.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate",
            metavar="FILE",
            help="Write a bound that 'placegap verify --certificate' checks without any solver;"
            " it takes up to a quarter of the time limit more, and a minute at most.",
        ),
    ] = None,
    second_opinion: Annotated[
        bool,
        typer.Option(
            "--second-opinion",
            help="Let another solver or method check the result, in the last third of the time"
            " limit or all that is left of it; exit status 1 if the two contradict each other.",
        ),
    ] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="PLAN",
            help="A plan file to start from; the result is no worse.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            "--log",
            metavar="FILE",
            help="Write each better plan and bound as a JSON line: seconds, value, bound, source.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Draw value and bound over time (.png or .svg)."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Place a model on a cluster: a plan, its value, and a bound where the method proves one."""
    from placegap.experiments.running.exporting import (
        check_copies,
        check_formats,
        joins_ends,
        needed_granularity,
        parse_exports,
        price_of_modules,
        write_exports,
    )
    from placegap.experiments.running.placing import (
        FIRST_SHARE,
        Attempt,
        Stopped,
        choose_semantics,
        given_plan,
        place,
        rules_of_start,
    )
    from placegap.experiments.running.sources import Source
    from placegap.instances.transforms.table import find_transform
    from placegap.solvers.core.registry import find_method, parse_params
    from placegap.solvers.solving.default_methods import default_method, proving_method
    from placegap.solvers.solving.known_bounds import with_bounds_of

    if not (0 < time_limit <= LONGEST_S or time_limit == math.inf):
        raise InputError(f"--time-limit must be positive, and at most {LONGEST_S} or inf")
    if not 0 <= gap < 1 or seed < 0:
        raise InputError("--gap must be in [0, 1), --seed not negative")
    exports = parse_exports(export or ())
    whole = needed_granularity(granularity, list(exports))
    check_outputs(out, write, log, plot, certificate, *exports.values())
    check_plot(plot)
    if out is not None:
        check_outputs(finer_file(out))
    if out is not None and method is not None and find_method(method).claim == "bound":
        raise InputError(f"{method} makes no plans: there is none for -o")
    if exports and method is not None and find_method(method).claim == "bound":
        raise InputError(f"{method} makes no plans: there is none for --export")
    if write is not None and (out is not None or exports):
        raise InputError(
            f"--write solves nothing: there is no plan for {'--export' if exports else '-o'}"
        )
    if certificate is not None and whole != "op":
        raise InputError(
            f"--certificate is about single ops, and the plan is made of {whole}s; add"
            " --granularity op, or leave out --certificate"
        )
    if write is not None and certificate is not None:
        raise InputError("--write solves nothing: there is no bound for --certificate")
    params = parse_pairs(param or ())
    coarsen_params = parse_pairs(coarsen_param or (), "--coarsen-param")
    if coarsen is None and coarsen_params:
        raise InputError("--coarsen-param belongs to a transform: name it by --coarsen")
    if coarsen is not None:
        find_transform(coarsen, coarsen_params)
    if method is not None:
        parse_params(find_method(method), params)
    source = Source(model, cluster, time_unit, dims=parse_dims(dim), tracing=tracing, times=times)
    fine = read_instance(source)
    check_copies(list(exports), fine.graph, model)
    instance = with_granularity(fine, whole, join_ends=joins_ends(list(exports)))
    is_own = is_traced(model) or instance is not fine  # a worker would trace it once more
    shares = FIRST_SHARE if second_opinion or instance is not fine else 1.0
    chosen = choose_semantics(
        rules,
        instance,
        method,
        params,
        stated=None if start is None else rules_of_start(start),
        is_final=coarsen is None,
    )
    if chosen.note:
        warn(chosen.note)
    if instance is not fine:
        instance = with_bounds_of(fine, instance, chosen.semantics)
    first = Attempt(
        source=instance if is_own else source,
        semantics=chosen.semantics,
        method=method or default_method(chosen.semantics),
        params=params,
        time_limit_s=time_limit * shares,
        gap=gap,
        seed=seed,
        coarsen=coarsen,
        coarsen_params=coarsen_params,
    )
    check_formats(list(exports), instance, first.semantics)
    if is_traced(model) and rules.objective is None and isinstance(first.semantics, LoadSemantics):
        warn(
            f"the objective is {first.semantics.label}, as is usual for models that are traced: one"
            " pass gains little from more devices; --objective makespan asks for that"
        )
    known = None
    if start is not None:
        with spinner(f"reading {start}"):
            known, said = given_plan(instance, first.semantics, start, fine)
        for sentence in said:
            warn(sentence)
        first = replace(first, incumbent=known.plan)
    if write is not None:
        seen, coarse = coarsened(instance, first)
        write_model_file(
            seen,
            replace(first, semantics=coarse, method=method or proving_method(coarse)),
            write,
            as_json,
        )
        return
    try:
        what = f"placing {instance.name}, {first.semantics.label}"
        with (
            live_line(what, quiet=quiet or as_json) as show,
            search_log(log, plot, what) as on_news,
        ):
            result, warnings = place(first, start=known, on_news=both(show, on_news))
    except Stopped as stopped:
        if stopped.best is None or stopped.best.plan is None:
            raise KeyboardInterrupt from None
        with held():
            report(fine, stopped.best, out, as_json, model=model)
            for sentence in write_exports(fine, stopped.best, exports, model):
                warn(sentence)
        warn(f"stopped; this is the plan of {stopped.best.method}")
        raise typer.Exit(stop_status()) from None
    except RuntimeError as error:
        warn(f"no plan: {error}")
        raise typer.Exit(NO_PLAN) from None
    for sentence in warnings:
        warn(sentence)
    opinion = None
    if second_opinion:
        result, opinion = _ask_second(instance, replace(first, time_limit_s=time_limit), result)
    written = None
    if certificate is not None:
        written = _certify(instance, result, certificate, time_limit)
    price = None
    if instance is not fine:
        with spinner(f"placing {fine.name} op by op"):
            rest = replace(first, time_limit_s=time_limit * (1 - FIRST_SHARE))
            price = price_of_modules(fine, rest, result, whole)
    with (
        held()
    ):  # a signal that comes now keeps neither the plan nor what is printed from being whole
        try:
            for sentence in write_exports(fine, result, exports, model):
                warn(sentence)
        finally:  # also where a format cannot say the plan, which may have taken an hour
            report(
                fine, result, out, as_json, opinion, model=model, certificate=written, price=price
            )
    if opinion is not None and opinion.verdict == "CONTRADICTS":
        warn("two methods contradict each other: one of them is wrong; please report this model")
        raise typer.Exit(NO_PLAN)
    if result.plan is None and result.status != "bound":
        raise typer.Exit(NO_PLAN)


def _certify(
    instance: Instance, result: Result, path: Path, time_limit_s: float
) -> Certificate | None:
    """Write what of the bound can be certified; a stop signal leaves the result as it is."""
    from placegap.experiments.running.certifying import write_certificate

    seen = instance if result.split is None else result.split.fine
    found = None
    try:
        with spinner(f"certifying a bound of {instance.name}"):
            found = write_certificate(seen, result, path, time_limit_s)
    except KeyboardInterrupt:
        warn("stopped: there is no certificate")
    else:
        if found is None:
            warn(f"no certificate: {NO_CERTIFICATE}")
    return found


def _ask_second(instance: Instance, first: Attempt, result: Result) -> tuple[Result, Opinion]:
    from placegap.experiments.running.placing import ask_second
    from placegap.solvers.solving.second_opinion import Opinion

    try:
        with spinner(f"a second opinion on {instance.name}"):
            return ask_second(instance, first, result)
    except KeyboardInterrupt:
        return result, Opinion("none", "stopped")
