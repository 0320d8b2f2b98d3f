"""All that is known of a plan, gathered once for the table, the chart, the page and comparisons."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from placegap.experiments.show.critical_path import PathPart, critical_path
from placegap.experiments.show.hybrid_stages import (
    StageApart,
    stage_bars,
    stage_crossings,
    stage_moves,
    stages_apart,
)
from placegap.experiments.show.place_report import claim_objects
from placegap.experiments.show.single_moves import Tried, single_moves
from placegap.experiments.show.timeline import (
    Crossing,
    Timeline,
    busy_ns,
    bytes_moved,
    crossings,
    timeline,
)
from placegap.instances.exporters.trace import Levels, levels_of, memory_levels
from placegap.instances.problem import (
    AllLoads,
    Evaluation,
    HybridPipeline,
    Instance,
    MaxContext,
    Plan,
    Semantics,
)
from placegap.instances.problem.modules import Granularity, with_content
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.result import Bound, gap_to
from placegap.solvers.solving.known_bounds import Claim

MOST_CROSSINGS = 5
"""Transfers that are named."""


class DeviceShare(NamedTuple):
    """What a device, or one of a stage of a hybrid plan, does in the time that a plan takes.

    `busy` is the share of the value in which it runs ops; under max_load and hybrid_pipeline its
    load as a share of the value, transfers included, and under max_context as one of the heaviest.
    """

    name: str
    kind: str
    num_ops: int
    busy: float
    in_bytes: int
    out_bytes: int
    memory_bytes: int
    limit_bytes: int | None

    @property
    def idle(self) -> float:
        """The rest of the time."""
        return 1 - self.busy


@dataclass(frozen=True)
class Anatomy:
    """A plan that has a value, taken apart."""

    #: instance, plan, semantics, verdict: The plan, and what the referee says of it.
    instance: Instance
    plan: Plan
    semantics: Semantics
    verdict: Evaluation
    #: What no plan is below.
    bound: Bound | None
    devices: tuple[DeviceShare, ...]
    drawn: Timeline
    #: Of each device; moments are in ns if `is_timed`, else steps of a sample.
    memory: list[Levels]
    is_timed: bool
    path: tuple[PathPart, ...]
    #: The most expensive first.
    crossings: tuple[Crossing, ...]
    next_moves: Tried
    #: What made the plan.
    method: str = ""
    #: Of a hybrid plan; all that is said of devices, by number too, is then said of stages.
    stages: tuple[StageApart, ...] = ()
    #: What single moves move as one.
    kept: Granularity = "op"
    #: What the files of the model and of plans claim.
    claims: tuple[Claim, ...] = ()

    @property
    def home(self) -> list[int]:
        """The device, or the stage, of each op."""
        if self.stages and self.plan.stage is not None:
            return list(self.plan.stage)
        return [int(k) for k in self.plan.devices]

    @property
    def homes(self) -> list[str]:
        """What devices, or stages, are called."""
        return [each.name for each in self.devices]

    @property
    def value_ns(self) -> int:
        """The plan's value."""
        assert self.verdict.value_ns is not None
        return self.verdict.value_ns

    @property
    def gap(self) -> float | None:
        """How far the value is above the bound (`gap_to`); None where a rule is broken."""
        return gap_to(self.value_ns, self.bound) if self.verdict.feasible else None


def take_apart(
    instance: Instance,
    plan: Plan,
    semantics: Semantics,
    bound: Bound | None = None,
    method: str = "",
    *,
    num_moves: int = 5,
    whole: Instance | None = None,
) -> Anatomy | None:
    """The anatomy of a plan; None where it has no value.

    `num_moves` 0 tries no moves, which takes most of the time.
    `whole` is the instance with whole modules or layers, where single moves are to keep them.
    """
    verdict = evaluate(instance, plan, semantics)
    if verdict.value_ns is None:
        return None
    if isinstance(semantics, HybridPipeline):
        return _hybrid(instance, plan, semantics, verdict, bound, method, num_moves)
    crossed = crossings(instance, plan, semantics)
    drawn = timeline(instance, plan, semantics, verdict, crossed)
    into, out = bytes_moved(crossed, instance.num_devices)
    if isinstance(semantics, AllLoads):
        busy = [use.load_ns for use in verdict.uses]
    else:
        busy = busy_ns(drawn, instance.num_devices)
    is_context = isinstance(semantics, MaxContext)
    whole_ns = max(busy) if is_context else verdict.value_ns
    rows = zip(verdict.uses, instance.cluster.devices, busy, into, out, strict=True)
    devices = tuple(
        DeviceShare(
            use.device,
            spec.kind,
            use.num_ops,
            time_ns / max(1, whole_ns),
            a,
            b,
            use.memory_bytes,
            spec.memory_bytes,
        )
        for use, spec, time_ns, a, b in rows
    )
    tried = Tried((), 0, 0)
    if num_moves and not is_context:
        tried = single_moves(whole or instance, plan, semantics, verdict, num_moves)
    return Anatomy(
        instance,
        plan,
        semantics,
        verdict,
        bound,
        devices,
        drawn,
        memory_levels(instance, plan, semantics, verdict.schedule),
        not isinstance(semantics, AllLoads),
        critical_path(instance, plan, semantics, verdict),
        tuple(sorted(crossed, key=lambda each: (-each.time_ns, each.tensor, each.targets))),
        tried,
        method,
        kept=_granularity(instance, whole),
    )


def _granularity(instance: Instance, whole: Instance | None) -> Granularity:
    """What is a whole in the other one of two instances, which differ in nothing else."""
    found = None if whole is None else with_content(instance, whole.content_hash)
    return "op" if found is None else found[1]


def _hybrid(
    instance: Instance,
    plan: Plan,
    semantics: HybridPipeline,
    verdict: Evaluation,
    bound: Bound | None,
    method: str,
    num_moves: int,
) -> Anatomy:
    """The same of a hybrid plan, with stages in the place of devices."""
    stages = stages_apart(instance, plan, semantics, verdict)
    crossed = stage_crossings(instance, semantics, stages)
    into, out = bytes_moved(crossed, len(stages))
    names = [f"stage {s} ({each.degrees})" for s, each in enumerate(stages)]
    shares, value = [], max(1, verdict.value_ns or 0)
    for each, name, a, b in zip(stages, names, into, out, strict=True):
        use = verdict.uses[each.stage.devices[0]]
        limit = instance.cluster.devices[each.stage.devices[0]].memory_bytes
        kind = instance.cluster.devices[0].kind
        row = (name, kind, use.num_ops, use.load_ns / value, a, b, use.memory_bytes, limit)
        shares.append(DeviceShare(*row))
    drawn = Timeline(
        tuple(names),
        tuple(stage_bars(instance, semantics, verdict, stages, crossed)),
        (),
        verdict.value_ns or 0,
        "what each device of a stage does for one batch of a full pipeline; the longest row counts"
        + (", and what fills and drains the pipeline" if semantics.bubble else ""),
    )
    tried = Tried((), 0, 0)
    if num_moves:
        tried = stage_moves(instance, plan, semantics, verdict, num_moves)
    return Anatomy(
        instance,
        plan,
        semantics,
        verdict,
        bound,
        tuple(shares),
        drawn,
        levels_of([share.memory_bytes for share in shares], ()),
        False,
        (),
        tuple(sorted(crossed, key=lambda each: (-each.time_ns, each.tensor))),
        tried,
        method,
        stages,
    )


def _stage_object(each: StageApart, share: DeviceShare) -> dict[str, Any]:
    return {
        **share._asdict(),
        "replicas": each.stage.replicas,
        "tensor": each.stage.tensor,
        "in_flight": each.stage.in_flight,
        "modes": Counter(mode.name for mode in each.modes),
        "state_bytes": each.state_bytes,
        "held_bytes": each.held_bytes,
        "workspace_bytes": each.workspace_bytes,
    }


def anatomy_object(found: Anatomy) -> dict[str, Any]:
    """What ``--json`` prints of an anatomy: times in ns, everything by name."""
    ops, names = found.instance.graph.ops, found.homes
    return {
        "value_ns": found.value_ns,
        "feasible": found.verdict.feasible,
        "violations": [vars(violation) for violation in found.verdict.violations],
        "bound_ns": None if found.bound is None else found.bound.ns,
        "bound_origin": "" if found.bound is None else found.bound.origin,
        "bound_class": "" if found.bound is None else found.bound.plan_class,
        "rests_on": "" if found.bound is None else found.bound.basis,
        "gap": found.gap,
        "claims": claim_objects(found.claims),
        **(
            {"stages": [*map(_stage_object, found.stages, found.devices)]}
            if found.stages
            else {"devices": [{**each._asdict(), "idle": each.idle} for each in found.devices]}
        ),
        "critical_path": [
            {
                "name": link.name,
                "device": names[link.device],
                "to": None if link.target < 0 else names[link.target],
                "start_ns": link.start_ns,
                "end_ns": link.end_ns,
                "why": link.why,
            }
            for link in found.path
        ],
        "transfers": [
            {
                "op": ops[each.producer].name,
                "from": names[each.source],
                "to": [names[k] for k in each.targets],
                "bytes": each.bytes,
                "time_ns": each.time_ns,
            }
            for each in found.crossings[:MOST_CROSSINGS]
        ],
        "moves": [
            {
                "what": move.what,
                "ops": move.num_ops,
                "from": names[move.source],
                "to": names[move.target],
                "value_ns": move.value_ns,
                "gain_ns": move.gain_ns,
            }
            for move in found.next_moves.moves
        ],
        "moves_tried": found.next_moves.tried,
        "moves_in_all": found.next_moves.all,
    }
