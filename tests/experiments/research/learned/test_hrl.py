"""HRL: rewards, gradients, and ops that a group's device cannot run."""

from __future__ import annotations

import numpy as np
import pytest
from draws.tiny import tiny_instance

from placegap.experiments.research.learned.evaluations import Evaluations
from placegap.instances import Makespan
from placegap.instances.problem.integers import UNSUPPORTED

torch = pytest.importorskip("torch", reason="needs the torch extra")
pytestmark = pytest.mark.torch


def learner(instance, budget: int = 100, groups: int = 3):  # type: ignore[no-untyped-def]
    from placegap.experiments.research.learned.hrl import Hrl, op_features

    tried = Evaluations(instance, Makespan(), budget)
    return Hrl(op_features(instance), tried, groups, width=8, rate=0.003)


def test_the_gradient_goes_to_both_policies() -> None:
    from placegap.experiments.research.learned.hrl import Draws, Sample, hierarchical_loss

    grouping = torch.tensor(-1.0, requires_grad=True)
    placements = torch.tensor([-2.0, -3.0, -4.0, -5.0], requires_grad=True)
    draws = Draws(Sample(torch.zeros(4), grouping), Sample(torch.zeros(4, 3), placements))
    hierarchical_loss(draws, torch.tensor([1.0, 2.0, -1.0, 2.0])).backward()
    # minus the mean advantage for the one grouping, minus a quarter of its own for each placement
    assert grouping.grad.item() == pytest.approx(-1.0)
    assert placements.grad.tolist() == pytest.approx([-0.25, -0.5, 0.25, -0.5])


def test_an_op_that_the_device_of_its_group_cannot_run_goes_where_it_can() -> None:
    for seed in range(10):
        instance = tiny_instance(seed, num_ops=8, num_devices=3)
        player = learner(instance)
        for k in range(3):
            units = len(player.ops.kind)
            device = player.device_of_ops(np.full(units, k))
            times = instance.arrays.time_ns[np.arange(8), device]
            assert (times != UNSUPPORTED).all()
            together = instance.arrays.group
            assert all(len({*device[together == g].tolist()}) == 1 for g in together.tolist())
