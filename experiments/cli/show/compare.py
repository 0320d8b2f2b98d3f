"""``placegap compare``: two plans of one model, side by side."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from placegap.experiments.cli.options import (
    ClusterOption,
    DimOption,
    JsonOption,
    TimesOption,
    UnitOption,
    parse_dims,
    with_tracing,
)
from placegap.experiments.cli.show import BROKEN_RULES, ModelOption
from placegap.experiments.show.rendering import output
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import TraceOptions


@with_tracing
def compare_command(
    first: Annotated[str, typer.Argument(metavar="PLAN", help="A plan's JSON file.")],
    second: Annotated[str, typer.Argument(metavar="PLAN", help="Another plan of the same model.")],
    *,
    cluster: ClusterOption = None,
    model: ModelOption = None,
    tracing: TraceOptions,
    time_unit: UnitOption = None,
    dim: DimOption = None,
    times: TimesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two plans of a model: value, gap, what moved, and where the time goes.

    Both must state the same semantics. The exit status is 1 if one of them breaks a rule.
    """
    from placegap.experiments.cli.show import instance_of, judged, read_plan
    from placegap.experiments.running.sources import Source
    from placegap.experiments.show.words import comparison_object, print_comparison
    from placegap.instances.io.document import read_json

    source = None
    if model is not None:
        source = Source(
            model, cluster, time_unit, dims=parse_dims(dim), tracing=tracing, times=times
        )
    plans = []
    for file in (first, second):
        plan = read_plan(file)
        if plan is None:
            read_json(file)  # says what is wrong with what is no JSON
            raise InputError("is not a plan; 'placegap place -o' writes one", file)
        plans.append(plan)
    one, other = plans
    if one.semantics != other.semantics:
        raise InputError(
            f"the plans were made for {one.semantics.label} and {other.semantics.label}: their"
            " values cannot be compared; 'placegap verify' judges a plan under other rules",
            second,
        )
    if one.instance_hash and other.instance_hash and one.instance_hash != other.instance_hash:
        raise InputError(
            f"it is a plan of {other.instance!r}, and {first} one of another content,"
            f" {one.instance!r}: compare plans of one model on one cluster",
            second,
        )
    instance = instance_of(one, first, source)
    if instance is None:
        raise InputError(
            f"the plan is of {one.instance!r}, which is no graph of the corpus with this content:"
            " name its model (--model) and cluster (--cluster)",
            first,
        )
    before, after = judged(instance, [(first, one), (second, other)], source, num_moves=0)
    if as_json:
        print(json.dumps(comparison_object(before, after), ensure_ascii=False), flush=True)
    else:
        print_comparison(output(), before, after, (first, second))
    if not (before.verdict.feasible and after.verdict.feasible):
        raise typer.Exit(BROKEN_RULES)
