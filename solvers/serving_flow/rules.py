"""Rules of other systems for ranges of layers: Petals and Swarm."""

from __future__ import annotations

from placegap.instances.objectives.flow.referee import plan_of, problem_of
from placegap.instances.problem import ServingFlow
from placegap.instances.problem.flow_problem import FlowProblem, Range, Ranges
from placegap.solvers.core.method import Params, Task
from placegap.solvers.core.registry import method
from placegap.solvers.core.result import Outcome


def petals_ranges(problem: FlowProblem) -> Ranges:
    """Each machine in turn holds as many layers as it can, where they are passed least so far."""
    passed, found = [0] * problem.num_layers, list[Range]()
    for i in range(problem.num_machines):
        h = problem.most_layers(i)
        starts = range(problem.num_layers - h + 1)
        s = min(starts, key=lambda s: (sorted(passed[s : s + h]), s))
        for layer in range(s, s + h):
            passed[layer] += problem.throughput(i, h)
        found.append(Range(s, h))
    return tuple(found)


def swarm_ranges(problem: FlowProblem) -> Ranges:
    """Equal stages, as few as the smallest machine can hold, each machine where least is passed."""
    least = min(problem.most_layers(i) for i in range(problem.num_machines))
    count = -(-problem.num_layers // least)
    ends = [problem.num_layers * (s + 1) // count for s in range(count)]
    stages = [Range(a, b - a) for a, b in zip([0, *ends], ends, strict=False)]
    passed, found = [0] * count, [stages[0]] * problem.num_machines
    order = sorted(range(problem.num_machines), key=lambda i: (problem.throughput(i, least), i))
    for i in reversed(order):
        s = min(range(count), key=passed.__getitem__)
        passed[s] += problem.throughput(i, stages[s].layers)
        found[i] = stages[s]
    return tuple(found)


def _outcome(task: Task[ServingFlow], ranges: Ranges) -> Outcome:
    plan = plan_of(task.instance, ranges)
    return Outcome(plan, message="" if plan else "some layer is held by no machine")


@method("petals", objectives=("serving_flow",), cites="Borzunov et al. 2023", claim="heuristic")
def petals(task: Task[ServingFlow], params: Params) -> Outcome:
    """Each machine holds as many layers as it can, where least is passed so far.

    Petals' rule for servers that join a swarm one after another, here in the instance's order: of
    all places for its layers, a server takes the one whose layers are passed least, the least one
    first. What servers pass is added up layer by layer; links do not count.
    """
    return _outcome(task, petals_ranges(problem_of(task.instance, task.semantics)))


@method("swarm", objectives=("serving_flow",), cites="Ryabinin et al. 2023", claim="heuristic")
def swarm(task: Task[ServingFlow], params: Params) -> Outcome:
    """Equal stages, and each machine, the fastest first, in the stage that passes least so far.

    The rule that Helix's authors name after SWARM: as few stages as the machine of least memory
    allows.
    """
    return _outcome(task, swarm_ranges(problem_of(task.instance, task.semantics)))
