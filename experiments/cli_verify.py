"""``placegap verify``: the referee's verdict on a plan file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from placegap.experiments.cli_show import read_plan
from placegap.experiments.device_table import device_table, server_lines
from placegap.experiments.figures import format_ns
from placegap.experiments.options import (
    ChannelsOption,
    ClusterOption,
    JsonOption,
    LevelsOption,
    LoadOption,
    Model,
    ObjectiveOption,
    PlansOption,
    ReplicasOption,
    Rules,
    SubgraphsOption,
    TransfersOption,
    UnitOption,
)
from placegap.experiments.rendering import output, spinner, warn

BROKEN_RULES = 1


def verify_command(
    model: Model,
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan's JSON file.")],
    cluster: ClusterOption = None,
    objective: ObjectiveOption = None,
    plans: PlansOption = None,
    channels: ChannelsOption = None,
    transfers: TransfersOption = None,
    load: LoadOption = None,
    replicas: ReplicasOption = None,
    levels: LevelsOption = None,
    subgraphs: SubgraphsOption = None,
    time_unit: UnitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let the referee judge a plan; every broken rule is listed, and the exit status is then 1.

    The plan's own semantics applies; options replace single fields of it.
    """
    from placegap.experiments.sources import Source, load_source
    from placegap.instances.evaluate import evaluate
    from placegap.instances.plan import Plan
    from placegap.instances.plan_file import load_plan

    with spinner(f"reading {model}"):
        instance = load_source(Source(model, cluster, time_unit.value if time_unit else None))
        plan, own = load_plan(instance, plan_file)
    raw = read_plan(str(plan_file)) or {}
    if raw.get("instance_hash") not in (None, "", instance.content_hash):
        warn(f"{plan_file}: was made for another content than that of {instance.name}")
    rules = Rules(objective, plans, channels, transfers, load, replicas, levels, subgraphs)
    semantics = rules.override(own)
    if semantics.objective != own.objective and plan != Plan(plan.placement):
        plan = Plan(plan.placement)
        warn(f"{plan_file}: only its placement is used: the rest was made for {own.objective}")
    verdict = evaluate(instance, plan, semantics)
    if as_json:
        content = {
            "instance": instance.name,
            "semantics": semantics.model_dump(mode="json"),
            "feasible": verdict.feasible,
            "value_ns": verdict.value_ns,
            "violations": [vars(violation) for violation in verdict.violations],
        }
        print(json.dumps(content, ensure_ascii=False), flush=True)
    else:
        console = output()
        console.print(f"{instance.name}: {semantics.label}", markup=False)
        if verdict.uses:
            console.print(device_table(instance, verdict, semantics))
            for line in server_lines(verdict):
                console.print(line, markup=False)
        value = "none" if verdict.value_ns is None else format_ns(verdict.value_ns)
        console.print(f"value    {value}")
        console.print(f"verdict  {'feasible' if verdict.feasible else 'infeasible'}")
        for violation in verdict.violations:
            console.print(f"- {violation}", markup=False, soft_wrap=True)
    if not verdict.feasible:
        raise typer.Exit(BROKEN_RULES)
    if verdict.idle_devices:
        warn(f"the plan leaves unused: {', '.join(verdict.idle_devices)}")
