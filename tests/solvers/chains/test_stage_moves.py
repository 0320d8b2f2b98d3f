"""Moves of blocks between stages: plans stay chains that fit, and values only fall."""

from __future__ import annotations

import numpy as np
from draws.chains import chain_instance

from placegap.instances import MaxLoad
from placegap.instances.problem import Plan
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.chains.bracket import Bracket, in_a_row
from placegap.solvers.chains.kinds_problem import build_kinds
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Task

CHAIN = MaxLoad(plans="chain")


def test_moves_lead_to_chains_whose_value_the_referee_confirms() -> None:
    improved = 0
    for seed in range(60):
        instance = chain_instance(seed)
        problem = build_kinds(instance, CHAIN)
        if not problem.fits.any(axis=0).all() or not problem.blocks.exact:
            continue
        bracket = Bracket(Task(instance, CHAIN), problem, Clock(None))
        # the ops one after the other on the devices, in as many pieces
        device = np.arange(instance.num_ops) * instance.num_devices // instance.num_ops
        start = evaluate(instance, Plan.on(device.tolist()), CHAIN)
        if not start.feasible:
            continue
        bracket.improve(start.value_ns, Plan.on(device.tolist()))
        costs = bracket.stage_costs()
        assert costs is not None
        bracket.move_blocks(costs, Clock(None))
        assert bracket.plan is not None
        after = evaluate(instance, bracket.plan, CHAIN)
        assert after.feasible, seed
        assert after.value_ns == bracket.value_ns, seed
        assert bracket.value_ns is not None
        assert start.value_ns is not None
        assert bracket.value_ns <= start.value_ns
        improved += bracket.value_ns < start.value_ns
    assert improved > 2


def test_devices_come_in_the_order_of_their_arcs() -> None:
    # block 0 on device 1 feeds block 1 on device 0; device 2 has none
    row = in_a_row(np.array([1, 0]), np.array([0]), np.array([1]), [0, 1, 2])
    assert row.tolist() == [1, 0, 2]
