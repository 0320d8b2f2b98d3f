"""``placegap show``: what a model, an instance or a plan is, in words and in pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from placegap.experiments.cli.options import (
    ClusterOption,
    DimOption,
    JsonOption,
    ParamOption,
    TimesOption,
    UnitOption,
    parse_dims,
    parse_pairs,
    warn_open,
    with_tracing,
)
from placegap.experiments.cli.show import (
    document_summary,
    plan_summary,
    print_summary,
)
from placegap.experiments.show.rendering import output, spinner, warn
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import TraceOptions

if TYPE_CHECKING:
    from placegap.experiments.running.certifying import Proof
    from placegap.experiments.running.sources import Source
    from placegap.experiments.show.anatomy import Anatomy
    from placegap.instances.io.plan_file import PlanFile

BROKEN_RULES = 1

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="The model of a plan, as 'placegap place' takes it; one of the corpus on a cluster"
        " that ships is found without.",
    ),
]
MethodOption = Annotated[
    str | None, typer.Option("--method", help="Let this method prove a bound for a plan.")
]
LimitOption = Annotated[
    float, typer.Option("--time-limit", metavar="S", help="Seconds for --method.")
]


@with_tracing
def show_command(
    file: Annotated[
        str, typer.Argument(metavar="INSTANCE|PLAN", help="A model, a corpus name, or a plan.")
    ],
    *,
    cluster: ClusterOption = None,
    model: ModelOption = None,
    tracing: TraceOptions,
    time_unit: UnitOption = None,
    dim: DimOption = None,
    times: TimesOption = None,
    gantt: Annotated[
        Path | None,
        typer.Option(
            "--gantt", metavar="FILE", help="Draw what a plan's devices do when (.png or .svg)."
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a plan as one page, which needs no network."
        ),
    ] = None,
    method: MethodOption = None,
    param: ParamOption = None,
    time_limit: LimitOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Summarize a model or an instance; of a plan, say what it does and what to change next.

    A plan is judged by the referee: what each device does, why the plan takes so long, its dearest
    transfers, and the single moves that gain most. The exit status is 1 if it breaks a rule.
    """
    from placegap.experiments.cli.show import instance_of, judged, read_plan
    from placegap.experiments.running.sources import Source
    from placegap.experiments.show.rendering import check_outputs
    from placegap.experiments.show.search_log import check_plot

    check_outputs(gantt, html)
    check_plot(gantt)
    plan = read_plan(file)
    if plan is None:
        given_model = Source(file, cluster, time_unit, dims=parse_dims(dim), tracing=tracing)
        only = {
            "--gantt": gantt,
            "--html": html,
            "--model": model,
            "--method": method,
            "--times": times,
        }
        given = [option for option, value in only.items() if value is not None]
        _show_model(given_model, as_json, given)
        return
    source = None
    if model is not None:
        source = Source(
            model, cluster, time_unit, dims=parse_dims(dim), tracing=tracing, times=times
        )
    elif cluster is not None:
        raise InputError("--cluster is that of a plan's model: name it, too (--model)", file)
    instance = instance_of(plan, file, source)
    if instance is None:
        _show_names(plan, file, gantt or html, as_json)
        return
    proof = _proof(method, param, time_limit)
    (found,) = judged(instance, [(file, plan)], source, proof, num_moves=5)
    _draw(found, gantt, html)
    if as_json:
        from placegap.experiments.show.anatomy import anatomy_object

        print(
            json.dumps({**plan_summary(plan), **anatomy_object(found)}, ensure_ascii=False),
            flush=True,
        )
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
            raise InputError("--param belongs to a method: name it by --method")
        return None
    find_method(method)
    if not time_limit_s > 0:
        raise InputError("--time-limit must be positive")
    return Proof(method, params, time_limit_s)


def _show_model(source: Source, as_json: bool, for_plans: list[str]) -> None:
    from placegap.experiments.running.sources import check_rates, find_cluster, find_model
    from placegap.instances.io.document import Document

    with spinner(f"reading {source.model}"):
        chosen = None if source.cluster is None else find_cluster(source.cluster)
        check_rates(source.model, chosen)
        document = find_model(source.model, source.time_unit, source.dims, source.tracing)
        if for_plans:
            raise InputError(f"{for_plans[0]} is for plans, and this is a model", source.model)
        chosen = chosen or document.cluster
        if chosen is not None:
            document = Document.of(document.instance(chosen))
    summary = document_summary(document)
    warn_open(document.graph, source.model)
    if as_json:
        print(json.dumps(summary, ensure_ascii=False), flush=True)
    else:
        print_summary(summary)


def _show_names(plan: PlanFile, file: str, picture: Path | None, as_json: bool) -> None:
    """What a plan says without its model."""
    need = (
        f"the plan is of {plan.instance!r}, which is no graph of the corpus with this content: name"
        " its model (--model) and cluster (--cluster) to see what it does"
    )
    if picture is not None:
        raise InputError(need, file)
    summary = plan_summary(plan)
    if as_json:
        print(json.dumps(summary, ensure_ascii=False), flush=True)
    else:
        print_summary(summary)
        warn(f"{file}: {need}")


def _draw(found: Anatomy, gantt: Path | None, html: Path | None) -> None:
    if gantt is not None:
        from placegap.experiments.show.drawing import write_figure
        from placegap.experiments.show.gantt import draw_plan

        with spinner(f"drawing {gantt}"):
            write_figure(draw_plan(found), gantt)
    if html is not None:
        from placegap.experiments.show.page import plan_page
        from placegap.instances.io.document import write_text

        with spinner(f"writing {html}"):
            write_text(plan_page(found), html)
