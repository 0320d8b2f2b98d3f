"""Every plan of serving_flow for a few machines and layers: the tests' oracle."""

from __future__ import annotations

import math

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.objectives.flow.referee import plan_of, problem_of
from placegap.instances.problem import Instance, Plan, ServingFlow
from placegap.instances.problem.flow_problem import FlowProblem
from placegap.solvers.serving_flow.flow import MachineArrays, flow, machines_of, to_ranges

MOST_LAYERS = 6


def count_plans(problem: FlowProblem) -> int:
    """How many plans there are in which every machine holds something."""
    layers, machines = problem.num_layers, range(problem.num_machines)
    return math.prod(sum(layers - h for h in range(problem.most_layers(i))) for i in machines)


def best_ranges(instance: Instance, rules: ServingFlow) -> tuple[int, Plan] | None:
    """The largest flow and a plan of it; None where no plan holds all layers."""
    problem = problem_of(instance, rules)
    most = np.array([problem.most_layers(i) for i in range(problem.num_machines)], np.int64)
    value, start, layers = _best(machines_of(problem), most)
    plan = plan_of(instance, to_ranges(start, layers))
    return None if plan is None else (int(value), plan)


@kernel
def _best(machines: MachineArrays, most: Ints) -> tuple[int, Ints, Ints]:
    """Count through the ranges of all machines; plans that hold every layer get a flow."""
    # A machine more takes nothing from a flow, so each holds something.
    n, all_layers = len(most), machines.num_layers
    start, layers = np.zeros(n, np.int64), np.ones(n, np.int64)
    best_start, best_layers = np.zeros(n, np.int64), np.zeros(n, np.int64)
    left = np.zeros((2 * n + 2, 2 * n + 2), np.int64)
    value = -1
    while True:
        held = 0
        for i in range(n):
            held |= (1 << (start[i] + layers[i])) - (1 << start[i])
        if held == (1 << all_layers) - 1:
            found = flow(machines, start, layers, left)
            if found > value:
                value = found
                for i in range(n):
                    best_start[i], best_layers[i] = start[i], layers[i]
        i = 0
        while i < n:  # the next range of the first machine that has one, the first of those before
            start[i] += 1
            if start[i] + layers[i] <= all_layers:
                break
            start[i] = 0
            layers[i] += 1
            if layers[i] <= most[i]:
                break
            layers[i] = 1
            i += 1
        if i == n:
            return value, best_start, best_layers
