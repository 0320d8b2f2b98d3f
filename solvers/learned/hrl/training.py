"""HRL's updates: a grouping, some placements of the groups, REINFORCE for both policies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from placegap.experiments.research.learned.evaluations import Evaluations
from placegap.experiments.research.learned.hrl import (
    Grouper,
    GroupPlacer,
    OpFeatures,
    Sample,
    group_features,
)
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.clock import Clock

LARGEST_NORM, BASELINE_DECAY, NO_FIT = 1.0, 0.9, -10.0
"""Clipping of gradients; decay of the average reward; reward of what does not fit, in units of the
reward of all ops one after the other."""


class Draws(NamedTuple):
    """One grouping of units, and k placements of the groups."""

    grouping: Sample
    placements: Sample


class Hrl:
    """Training of both policies on one instance.

    Parameters
    ----------
    ops : OpFeatures
    tried : Evaluations
    num_groups, width : int
        Groups, and the width of the placer's LSTMs.
    rate : float
        Adam's.
    """

    def __init__(
        self, ops: OpFeatures, tried: Evaluations, num_groups: int, width: int, rate: float
    ) -> None:
        self.ops, self.tried, self.num_groups = ops, tried, num_groups
        instance = tried.instance
        num_features = ops.num_kinds + 1 + num_groups
        self.grouper = Grouper(ops.num_kinds, ops.numbers.shape[1], num_groups)
        self.placer = GroupPlacer(num_features, instance.num_devices, width)
        self.parameters = [*self.grouper.parameters(), *self.placer.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=rate)
        self.kind, self.numbers = torch.from_numpy(ops.kind), torch.from_numpy(ops.numbers)
        time_ns = np.where(instance.arrays.time_ns == UNSUPPORTED, np.inf, instance.arrays.time_ns)
        self.scale_ns = float(max(1.0, time_ns.min(axis=1).sum()))
        of_unit = np.zeros((len(ops.kind), instance.num_devices))
        arrays = instance.arrays
        self.supported = arrays.group_runs[arrays.group]
        np.add.at(of_unit, ops.unit, np.where(self.supported, time_ns, np.inf))
        self.fallback = of_unit.argmin(axis=1)[ops.unit]
        self.baseline: float | None = None

    def train(self, samples: int, clock: Clock) -> None:
        """Update both policies until the budget is spent, with so many placements each time."""
        while self.tried.left > 0:
            draws = self.draw(min(samples, self.tried.left))
            placements = draws.placements.choice.numpy()[:, draws.grouping.choice.numpy()]
            rewards, times = [], []
            for of_unit in placements:
                clock.check()
                trial = self.tried.run(self.device_of_ops(of_unit))
                times.append(trial.time_ns)
                fits = trial.excess == 0.0
                rewards.append(-float(np.sqrt(trial.time_ns / self.scale_ns)) if fits else NO_FIT)
            mean = float(np.mean(rewards))
            if self.baseline is None:
                self.baseline = mean
            advantage = torch.tensor([reward - self.baseline for reward in rewards])
            self.baseline = BASELINE_DECAY * self.baseline + (1 - BASELINE_DECAY) * mean
            loss = hierarchical_loss(draws, advantage)
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, LARGEST_NORM)
            self.optimizer.step()
            self.tried.end_update(float(np.mean(times)))

    def draw(self, samples: int) -> Draws:
        """Draw one grouping, and so many placements of its groups."""
        grouping = self.grouper(self.kind, self.numbers)
        rows = group_features(self.ops, grouping.choice.numpy(), self.num_groups)
        return Draws(grouping, self.placer(torch.from_numpy(rows), samples))

    def device_of_ops(self, of_unit: Ints) -> Ints:
        """Device of each op; where that of its group cannot run it, the fastest that can."""
        device = of_unit[self.ops.unit]
        runs = self.supported[np.arange(len(device)), device]
        return np.where(runs, device, self.fallback).astype(np.int64)


def hierarchical_loss(draws: Draws, advantage: Tensor) -> Tensor:
    """REINFORCE for both policies: minus the mean of advantage x log probability of both choices.

    Parameters
    ----------
    draws : Draws
    advantage : (k,)
        Reward minus baseline of each placement.
    """
    both = draws.grouping.log_probability + draws.placements.log_probability
    return -(advantage * both).mean()
