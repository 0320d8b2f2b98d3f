"""Placeto's episodes and REINFORCE: every step is one visit of one node, and one simulation."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from placegap.instances.problem.graph_index import Ints
from placegap.solvers.core.clock import Clock
from placegap.solvers.learned.evaluations import Evaluations, Trial, cost
from placegap.solvers.learned.placeto.network import GraphTensors, PlacetoPolicy, graph_tensors
from placegap.solvers.learned.placeto.nodes import Nodes, features

BASELINE_UPDATES = 10
"""The baseline of a step is its mean return over so many updates."""

FIRST_RATE, LAST_RATE, LARGEST_NORM = 3e-3, 3e-4, 1.25
"""Learning rates of Adam at the beginning and at the end (Placeto's: 1e-3 and 1e-4), clipping."""

FIRST_ENTROPY = 0.05
"""Coefficient of the entropy at the beginning; at the end it is 0 (Placeto's: 1)."""


class Episodes(NamedTuple):
    """Several episodes of V steps that ran side by side.

    `states` (V, W, N, features), `current` (V,), `chosen` (V, W) devices; `costs` (V + 1, W) with
    that of the start.
    """

    states: Tensor
    current: Ints
    chosen: Tensor
    costs: NDArray[np.float64]


class Placeto:
    """Training of one policy on one instance.

    Parameters
    ----------
    nodes : Nodes
    tried : Evaluations
    policy : PlacetoPolicy
    start : (N,) int64
        Device of each node at the beginning of an episode.
    """

    def __init__(
        self, nodes: Nodes, tried: Evaluations, policy: PlacetoPolicy, start: Ints
    ) -> None:
        self.nodes, self.tried, self.policy, self.start = nodes, tried, policy, start
        self.graph: GraphTensors = graph_tensors(nodes)
        self.start_trial, self.start_times = self._run(start)
        self.scale_ns = float(max(1, self.start_trial.time_ns))

    def train(self, updates: int, workers: int, clock: Clock) -> None:
        """Update the policy so many times, each after an episode of each worker."""
        optimizer = torch.optim.Adam(self.policy.parameters(), lr=FIRST_RATE)
        returns: deque[NDArray[np.float64]] = deque(maxlen=BASELINE_UPDATES)
        for update in range(updates):
            share = update / max(1, updates - 1)
            for group in optimizer.param_groups:
                group["lr"] = FIRST_RATE * (LAST_RATE / FIRST_RATE) ** share
            episodes = self.play(workers, clock)
            found = episodes.costs[:-1] - episodes.costs[-1]  # sums of the later rewards
            returns.append(found)
            baseline = np.concatenate(list(returns), axis=1).mean(axis=1, keepdims=True)
            loss = policy_loss(
                self.policy, self.graph, episodes, found - baseline, FIRST_ENTROPY * (1 - share)
            )
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), LARGEST_NORM)
            optimizer.step()
            self.tried.end_update(float(episodes.costs[-1].mean()) * self.scale_ns)

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
            seen = np.stack([
                features(nodes, device[w], start_ns[w], at, visited) for w in range(workers)
            ])  # fmt: skip
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


def policy_loss(
    policy: PlacetoPolicy,
    graph: GraphTensors,
    episodes: Episodes,
    advantage: NDArray[np.float64],
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
