"""`hrl` on one instance: what it sees of it, its two networks, and their training.

One network groups ops, the other reads the groups and places each of them; an update is a grouping,
some placements of the groups, and REINFORCE for both.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from placegap.experiments.research.learned.evaluations import Evaluations, seeded, usual_evaluations
from placegap.experiments.research.learned.params import HrlParams
from placegap.instances.kernels.array_types import Ints
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import Task
from placegap.solvers.core.result import Outcome

Numbers = NDArray[np.float32]

MOST_KINDS = 32  # kinds of ops distinguished: the most frequent ones; all others are one more
NEIGHBOURS = 4  # producers, and consumers, of an op that are among its features


@dataclass(frozen=True, eq=False)
class OpFeatures:
    """An instance of n ops in U units: ops that are colocated are one unit."""

    unit: Ints  # (n,) int64: The unit of each op
    kind: Ints  # (U,) int64: Kind of the first op of each unit
    num_kinds: int
    op_kind: Ints  # (n,) int64
    #: (U, F) float32: Sizes and number of outputs, and where in the order the op and its neighbours
    #: are, all between -1 (no such neighbour) and 1.
    numbers: Numbers
    output_share: Numbers  # (n,) float32: Bytes that each op sends, of the sum
    #: producer, consumer: (m,) int64: Edges between ops.
    producer: Ints
    consumer: Ints


def op_features(instance: Instance) -> OpFeatures:
    """Features of the ops of an instance; O(n + m)."""
    arrays, ops = instance.arrays, instance.graph.ops
    index, n = arrays.index, instance.num_ops
    count = Counter(op.kind for op in ops)
    kinds = [kind for kind, _ in sorted(count.items(), key=lambda pair: (-pair[1], pair[0]))]
    number = {kind: min(at, MOST_KINDS) for at, kind in enumerate(kinds)}
    op_kind = np.array([number[op.kind] for op in ops], np.int64)
    edges = [instance.graph.edges[e].bytes for e in index.tensor_first_edge.tolist()]
    sent, outputs = np.zeros(n), np.zeros(n)
    np.add.at(sent, index.tensor_producer, edges)
    np.add.at(outputs, index.tensor_producer, 1)
    place = index.topological_position / n
    columns = [_share(np.log1p(sent)), _share(outputs), place]
    sides = (
        (index.pred_ptr, index.pred_edge, index.producer),
        (index.succ_ptr, index.succ_edge, index.consumer),
    )
    for pointer, edge, end in sides:
        for nth in range(NEIGHBOURS):
            has = np.diff(pointer) > nth
            column = np.full(n, -1.0)
            column[has] = place[end[edge[pointer[:-1][has] + nth]]]
            columns.append(column)
    first = np.unique(arrays.group, return_index=True)[1]
    return OpFeatures(
        arrays.group,
        op_kind[first],
        len({*number.values()}),
        op_kind,
        np.stack(columns, axis=1)[first].astype(np.float32),
        (sent / max(1.0, sent.sum())).astype(np.float32),
        index.producer,
        index.consumer,
    )


def group_features(ops: OpFeatures, group: Ints, num_groups: int) -> Numbers:
    """Features of groups, (G, kinds + 1 + G): kinds of ops, outputs, groups that read them."""
    of_op = group[ops.unit]
    kinds = np.zeros((num_groups, ops.num_kinds), np.float32)
    np.add.at(kinds, (of_op, ops.op_kind), np.float32(num_groups / len(of_op)))
    outputs = np.zeros((num_groups, 1), np.float32)
    np.add.at(outputs[:, 0], of_op, ops.output_share)
    sends = np.zeros((num_groups, num_groups), np.float32)
    sends[of_op[ops.producer], of_op[ops.consumer]] = 1.0
    np.fill_diagonal(sends, 0.0)
    return np.concatenate([kinds, outputs, sends], axis=1)


def _share(values: NDArray[np.float64]) -> NDArray[np.float64]:
    most = float(values.max(initial=0.0))
    return values / most if most > 0 else values


LOGIT_BOUND, TEMPERATURE = 5.0, 10.0  # logits are C tanh(logits / T), as published
# Embedding of a kind of op, the grouper's hidden layer, embedding of a device.
KIND_WIDTH, GROUPER_WIDTH, DEVICE_WIDTH = 20, 64, 16


class Sample(NamedTuple):
    """Choices drawn from a policy, and the log probability of all that belong together."""

    choice: Tensor
    log_probability: Tensor


class Grouper(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A softmax over groups for each op, from its features, through one hidden layer."""

    def __init__(self, num_kinds: int, num_numbers: int, num_groups: int) -> None:
        super().__init__()
        self.kind = nn.Embedding(num_kinds, KIND_WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(KIND_WIDTH + num_numbers, GROUPER_WIDTH),
            nn.ReLU(),
            nn.Linear(GROUPER_WIDTH, num_groups),
        )

    def forward(self, kind: Tensor, numbers: Tensor) -> Sample:
        """Draw a group for each of U units."""
        logits = bounded(self.layers(torch.cat([self.kind(kind), numbers], dim=-1)))
        sample = draw(logits)
        return Sample(sample.choice, sample.log_probability.sum())


class GroupPlacer(nn.Module):  # type: ignore[misc]
    """Sequence to sequence: a bidirectional LSTM reads groups, one with attention writes."""

    def __init__(self, num_features: int, num_devices: int, width: int) -> None:
        super().__init__()
        half = max(1, width // 2)
        self.read = nn.LSTM(num_features, half, bidirectional=True, batch_first=True)
        self.device = nn.Embedding(num_devices + 1, DEVICE_WIDTH)  # the last: none yet
        self.write = nn.LSTMCell(DEVICE_WIDTH, 2 * half)
        self.key = nn.Linear(2 * half, width, bias=False)
        self.query = nn.Linear(2 * half, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        self.out = nn.Linear(4 * half, num_devices)

    def forward(self, groups: Tensor, samples: int) -> Sample:
        """Draw placements of G groups with features (G, F)."""
        memory, (hidden, cell) = self.read(groups.unsqueeze(0))
        memory = memory.squeeze(0)
        keys = self.key(memory)
        state = tuple(last.flatten().expand(samples, -1) for last in (hidden, cell))
        last = torch.full((samples,), self.device.num_embeddings - 1)
        chosen, total = [], torch.zeros(samples)
        for _ in range(len(groups)):
            state = self.write(self.device(last), state)
            query = self.query(state[0]).unsqueeze(1)
            weight = self.score(torch.tanh(keys + query)).squeeze(-1).softmax(-1)
            logits = bounded(self.out(torch.cat([state[0], weight @ memory], dim=-1)))
            sample = draw(logits)
            last = sample.choice
            chosen.append(last)
            total = total + sample.log_probability
        return Sample(torch.stack(chosen, dim=-1), total)


def bounded(logits: Tensor) -> Tensor:
    """C tanh(logits / T)."""
    return LOGIT_BOUND * torch.tanh(logits / TEMPERATURE)


def draw(logits: Tensor) -> Sample:
    """Draw from the softmax of each row."""
    log_probability = logits.log_softmax(-1)
    choice = torch.multinomial(log_probability.detach().exp(), 1)
    return Sample(choice.squeeze(-1), log_probability.gather(-1, choice).squeeze(-1))


# Clipping of gradients; decay of the average reward; reward of what does not fit, in units of the
# reward of all ops one after the other.
LARGEST_NORM, BASELINE_DECAY, NO_FIT = 1.0, 0.9, -10.0


class Draws(NamedTuple):
    """One grouping of units, and k placements of the groups."""

    grouping: Sample
    placements: Sample


class Hrl:
    """Training of both policies on one instance; `width` is that of the placer's LSTMs."""

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
        self.supported = arrays.able
        np.add.at(of_unit, ops.unit, np.where(self.supported, time_ns, np.inf))
        self.fallback = of_unit.argmin(axis=1)[ops.unit]
        self.baseline: float | None = None

    def train(self, samples: int, clock: Clock) -> None:
        """Update both policies until the budget is spent, with some placements each time."""
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
        """Draw one grouping, and some placements of its groups."""
        grouping = self.grouper(self.kind, self.numbers)
        rows = group_features(self.ops, grouping.choice.numpy(), self.num_groups)
        return Draws(grouping, self.placer(torch.from_numpy(rows), samples))

    def device_of_ops(self, of_unit: Ints) -> Ints:
        """Device of each op; where that of its group cannot run it, the fastest that can."""
        device = of_unit[self.ops.unit]
        runs = self.supported[np.arange(len(device)), device]
        return np.where(runs, device, self.fallback).astype(np.int64)


def hierarchical_loss(draws: Draws, advantage: Tensor) -> Tensor:
    """REINFORCE for both policies: minus the mean of advantage x log probability of choices."""
    # The advantage of a placement is its reward minus the baseline.
    both = draws.grouping.log_probability + draws.placements.log_probability
    return -(advantage * both).mean()


def run(task: Task[Makespan], params: HrlParams) -> Outcome:
    """The best placement that training on the instance ever tried (`run_hrl`)."""
    budget = params.evaluations or usual_evaluations(task.instance)
    tried = Evaluations(task.instance, task.semantics, budget, "hrl")
    return tried.outcome(learn(task, params, tried))


def learn(task: Task[Makespan], params: HrlParams, tried: Evaluations) -> str:
    """Train within the budget of `tried`; why it ended early, or an empty text."""
    clock = task.limits.clock()
    with seeded(task.limits.seed):
        ops = op_features(task.instance)
        groups = min(params.groups, len(ops.kind))
        learner = Hrl(ops, tried, groups, params.width, params.learning_rate)
        try:
            learner.train(params.samples, clock)
        except LimitReached as reached:
            return str(reached)
    return ""
