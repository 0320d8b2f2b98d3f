"""Placeto's policy: message passing over the graph, a summary around one node, a head.

Everything is dense, (B, N, d) for B states of one graph: graphs are merged to at most hundreds of
nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from placegap.experiments.research.learned.placeto_nodes import PlacetoNodes

GATHERED, FIRST_LOGITS = 0.3, 0.1
"""Initial weights of what is summed over several nodes, and of logits, are so much smaller."""


class GraphTensors(NamedTuple):
    """Matrices of `PlacetoNodes` as tensors; an (N, N) one sums over the marked nodes of a row."""

    producers: Tensor
    consumers: Tensor
    around: tuple[Tensor, Tensor, Tensor]
    supported: Tensor


def graph_tensors(nodes: PlacetoNodes) -> GraphTensors:
    """Copy the matrices of a graph into tensors."""
    around = (nodes.ancestors, nodes.descendants, nodes.parallel)
    ancestors, descendants, parallel = (torch.from_numpy(marks.copy()) for marks in around)
    return GraphTensors(
        torch.from_numpy(nodes.feeds),
        torch.from_numpy(nodes.feeds.T.copy()),
        (ancestors, descendants, parallel),
        torch.from_numpy(nodes.supported),
    )


class Gather(nn.Module):  # type: ignore[misc]  # torch has no types here
    """g(sum of f over some nodes); f and g have one hidden layer, and a ReLU on the outside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.each, self.total = _perceptron(width), _perceptron(width)

    def forward(self, marks: Tensor, nodes: Tensor) -> Tensor:
        """One row for each row of `marks`; 0 where it marks no node."""
        summed = self.total(marks @ self.each(nodes))
        return summed * marks.any(-1, keepdim=True)


class PlacetoPolicy(nn.Module):  # type: ignore[misc]
    """Logits over the devices for the current node of each state.

    Parameters
    ----------
    num_features, num_devices : int
    rounds : int
        Of message passing, all with the same weights.

    Examples
    --------
    >>> import numpy as np
    >>> from placegap.instances import example
    >>> from placegap.experiments.research.learned.placeto_nodes import nodes_of
    >>> nodes = nodes_of(example(), 4)
    >>> policy = PlacetoPolicy(nodes.num_features, 2, rounds=2)
    >>> states = torch.zeros(3, 4, nodes.num_features)
    >>> policy(graph_tensors(nodes), states, torch.tensor([0, 1, 1])).shape
    torch.Size([3, 2])
    """

    def __init__(self, num_features: int, num_devices: int, rounds: int) -> None:
        super().__init__()
        width, both = num_features, 2 * num_features
        self.rounds = rounds
        self.transform = nn.Sequential(
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
        )
        self.with_edges, self.against_edges = Gather(width), Gather(width)
        self.around = nn.ModuleList(Gather(both) for _ in range(3))
        self.head = nn.Sequential(
            nn.Linear(4 * both, 8 * both),
            nn.ReLU(),
            nn.Linear(8 * both, 4 * both),
            nn.ReLU(),
            nn.Linear(4 * both, num_devices),
        )
        self._see_at_first()

    def _see_at_first(self) -> None:
        """Initial weights as for ReLU networks: torch's own leave logits that no state changes."""
        gathers = [self.with_edges, self.against_edges, *self.around]
        with torch.no_grad():
            for layer in self.modules():
                if isinstance(layer, nn.Linear):
                    nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
                    nn.init.zeros_(layer.bias)
            for gather in gathers:
                gather.total[-2].weight *= GATHERED
            self.head[-1].weight *= FIRST_LOGITS

    def forward(self, graph: GraphTensors, states: Tensor, current: Tensor) -> Tensor:
        """Logits (B, K) of states (B, N, features) with current nodes (B,)."""
        own = self.transform(states)
        ahead, back = own, own
        for _ in range(self.rounds):
            ahead = own + self.with_edges(graph.producers, ahead)
            back = own + self.against_edges(graph.consumers, back)
        nodes = torch.cat([ahead, back], dim=-1)
        each = torch.arange(len(states))
        parts = [nodes[each, current]]
        for gather, marks in zip(self.around, graph.around, strict=True):
            parts.append(gather(marks[current].unsqueeze(1), nodes).squeeze(1))
        logits = self.head(torch.cat(parts, dim=-1))
        return logits.masked_fill(~graph.supported[current], float("-inf"))


def _perceptron(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
