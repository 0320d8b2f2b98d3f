"""All that is known of a plan, gathered once for the table, the chart, the page and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placegap.experiments.show.objectives.base import Judged, Parts, words_of
from placegap.experiments.show.place_report import claim_objects
from placegap.experiments.show.single_moves import NO_MOVES, Tried, best_moves
from placegap.instances.problem import Evaluation, Instance, Plan, Semantics
from placegap.instances.problem.modules import Granularity, with_content
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.core.result import Bound, gap_to
from placegap.solvers.solving.known_bounds import Claim

MOST_CROSSINGS = 5  # transfers that are named


@dataclass(frozen=True, kw_only=True)
class Anatomy(Parts):
    """A plan that has a value, taken apart."""

    #: instance, plan, semantics, verdict: The plan, and what the referee says of it.
    instance: Instance
    plan: Plan
    semantics: Semantics
    verdict: Evaluation
    #: What no plan is below.
    bound: Bound | None
    next_moves: Tried
    #: What made the plan.
    method: str = ""
    #: What single moves move as one.
    kept: Granularity = "op"
    #: What the files of the model and of plans claim.
    claims: tuple[Claim, ...] = ()

    @property
    def names(self) -> list[str]:
        """What devices, or stages, are called."""
        return [each.name for each in self.devices]

    @property
    def value(self) -> int:
        """The plan's value."""
        assert self.verdict.value is not None
        return self.verdict.value

    @property
    def gap(self) -> float | None:
        """How far the value is above the bound (`gap_to`); None where a rule is broken."""
        return gap_to(self.value, self.bound) if self.verdict.feasible else None


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
    """The anatomy of a plan; None where it has no value."""
    # `num_moves` 0 tries no moves, which takes most of the time. `whole` is the instance with whole
    # modules or layers, where single moves are to keep them.
    verdict = evaluate(instance, plan, semantics)
    if verdict.value is None:
        return None
    words, tried = words_of(semantics), NO_MOVES
    if num_moves and words.moves is not None:
        case = Judged(whole or instance, plan, semantics, verdict)
        tried = best_moves(case, words.moves(case), num_moves)
    return Anatomy(
        **vars(words.parts(Judged(instance, plan, semantics, verdict))),
        instance=instance,
        plan=plan,
        semantics=semantics,
        verdict=verdict,
        bound=bound,
        next_moves=tried,
        method=method,
        kept=_granularity(instance, whole),
    )


def _granularity(instance: Instance, whole: Instance | None) -> Granularity:
    """What `whole` keeps together of an instance that is otherwise equal."""
    found = None if whole is None else with_content(instance, whole.content_hash)
    return "op" if found is None else found[1]


def anatomy_object(found: Anatomy) -> dict[str, Any]:
    """What ``--json`` prints of an anatomy: times in ns, everything by name."""
    ops, names, key = found.instance.graph.ops, found.names, found.semantics.key
    return {
        key("value"): found.value,
        "feasible": found.verdict.feasible,
        "violations": [vars(violation) for violation in found.verdict.violations],
        key("bound"): None if found.bound is None else found.bound.value,
        "bound_origin": "" if found.bound is None else found.bound.origin,
        "bound_class": "" if found.bound is None else found.bound.plan_class,
        "rests_on": "" if found.bound is None else found.bound.basis,
        "gap": found.gap,
        "claims": claim_objects(found.claims, found.semantics),
        f"{found.homes.noun}s": found.homes.objects,
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
                key("value"): move.value,
                key("gain"): move.gain,
            }
            for move in found.next_moves.moves
        ],
        "moves_tried": found.next_moves.tried,
        "moves_in_all": found.next_moves.all,
    }
