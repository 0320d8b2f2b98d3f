"""Placeto's episodes and REINFORCE: every step is one visit of one node, and one simulation."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from placegap.experiments.research.learned.evaluations import Evaluations, Trial, cost
from placegap.experiments.research.learned.placeto import GraphTensors, PlacetoPolicy, graph_tensors
from placegap.experiments.research.learned.placeto_nodes import PlacetoNodes, features
from placegap.instances.problem.array_types import Floats, Ints
from placegap.solvers.core.clock import Clock

BASELINE_UPDATES = 10
"""The baseline of a step is its mean return over so many updates."""

LAST_RATE_SHARE, LARGEST_NORM = 0.1, 1.25
"""Share of the learning rate that is left at the end, and what gradients are clipped at."""


class Tuning(NamedTuple):
    """How a policy is trained: updates, episodes of each, Adam's rate and entropy at the start."""

    updates: int
    workers: int
    learning_rate: float
    entropy: float


class Episodes(NamedTuple):
    """Several episodes of V steps that ran side by side.

    `states` (V, W, N, features), `current` (V,), `chosen` (V, W) devices; `costs` (V + 1, W) with
    that of the start.
    """

    states: Tensor
    current: Ints
    chosen: Tensor
    costs: Floats


class Placeto:
    """One instance that a policy plays episodes on.

    Parameters
    ----------
    nodes : PlacetoNodes
    tried : Evaluations
    policy : PlacetoPolicy
    start : (N,) int64
        Device of each node at the beginning of an episode.
    """

    def __init__(
        self, nodes: PlacetoNodes, tried: Evaluations, policy: PlacetoPolicy, start: Ints
    ) -> None:
        self.nodes, self.tried, self.policy, self.start = nodes, tried, policy, start
        self.graph: GraphTensors = graph_tensors(nodes)
        self.returns: deque[Floats] = deque(maxlen=BASELINE_UPDATES)
        self.start_trial, self.start_times = self._run(start)
        self.scale_ns = float(max(1, self.start_trial.time_ns))

    def advantage(self, episodes: Episodes) -> Floats:
        """What each step is good for, (V, W), minus its mean over the last updates.

        That is the cost before it minus the least cost after it: Placeto's variant for searches,
        whose best placement counts, not the last one.
        """
        least_later = np.minimum.accumulate(episodes.costs[:0:-1])[::-1]
        found: Floats = episodes.costs[:-1] - least_later
        self.returns.append(found)
        baseline: Floats = np.concatenate(list(self.returns), axis=1).mean(axis=1, keepdims=True)
        return np.subtract(found, baseline)

    def play(self, workers: int, clock: Clock, *, greedy: bool = False) -> Episodes:
        """Let the policy visit every node once, in so many episodes side by side."""
        nodes = self.nodes
        device = np.tile(self.start, (workers, 1))
        start_ns = np.tile(self.start_times, (workers, 1))
        visited = np.zeros(len(self.start), np.bool_)
        costs = [np.full(workers, cost(self.start_trial, self.scale_ns))]
        states, chosen, current = [], [], []
        for together in nodes.visits:
            at = int(together[0])
            seen = np.stack(
                [features(nodes, device[w], start_ns[w], at, visited) for w in range(workers)]
            )
            state = torch.from_numpy(seen)
            with torch.no_grad():
                logits = self.policy(self.graph, state, torch.full((workers,), at))
                choice = (
                    logits.argmax(-1)
                    if greedy
                    else torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
                )
            after = np.empty(workers)
            for w, k in enumerate(choice.tolist()):
                clock.check()
                device[w, together] = k
                trial, start_ns[w] = self._run(device[w])
                after[w] = cost(trial, self.scale_ns)
            visited[together] = True
            costs.append(after)
            states.append(state)
            chosen.append(choice)
            current.append(at)
        return Episodes(
            torch.stack(states), np.array(current), torch.stack(chosen), np.stack(costs)
        )

    def _run(self, device: Ints) -> tuple[Trial, Ints]:
        trial = self.tried.run(device[self.nodes.node])
        return trial, self.tried.start_ns[self.nodes.first_op]


def train(learners: Sequence[Placeto], tuning: Tuning, clock: Clock) -> None:
    """Update the policy that some instances share, each time after episodes on the next of them.

    Raises
    ------
    LimitReached
        If the time is over; the policy keeps what it has learned.
    """
    policy = learners[0].policy
    optimizer = torch.optim.Adam(policy.parameters(), lr=tuning.learning_rate)
    for update in range(tuning.updates):
        learner = learners[update % len(learners)]
        done = update / max(1, tuning.updates - 1)
        for group in optimizer.param_groups:
            group["lr"] = tuning.learning_rate * LAST_RATE_SHARE**done
        episodes = learner.play(tuning.workers, clock)
        entropy = tuning.entropy * (1 - done)
        loss = policy_loss(policy, learner.graph, episodes, learner.advantage(episodes), entropy)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), LARGEST_NORM)
        optimizer.step()
        learner.tried.end_update(float(episodes.costs[-1].mean()) * learner.scale_ns)


def policy_loss(
    policy: PlacetoPolicy,
    graph: GraphTensors,
    episodes: Episodes,
    advantage: Floats,
    entropy: float,
) -> Tensor:
    """REINFORCE: minus the mean of advantage x log probability, and of the entropy.

    Parameters
    ----------
    policy : PlacetoPolicy
    graph : GraphTensors
    episodes : Episodes
    advantage : (V, W) float64
        Return minus baseline of each step.
    entropy : float
        Coefficient of the entropy.
    """
    steps, workers = advantage.shape
    current = torch.from_numpy(np.repeat(episodes.current, workers))
    logits = policy(graph, episodes.states.flatten(0, 1), current)
    log_probability = logits.log_softmax(-1)
    taken = log_probability.gather(-1, episodes.chosen.reshape(-1, 1)).squeeze(-1)
    gain = torch.from_numpy(advantage.reshape(steps * workers).astype(np.float32))
    spread = -(log_probability.exp() * log_probability.clamp(min=-1e9)).sum(-1)
    return -(gain * taken).mean() - entropy * spread.mean()
