"""HRL's two networks: one groups ops, the other reads the groups and places each of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

LOGIT_BOUND, TEMPERATURE = 5.0, 10.0
"""Logits are C tanh(logits / T), as published."""

KIND_WIDTH, GROUPER_WIDTH, DEVICE_WIDTH = 20, 64, 16
"""Embedding of a kind of op, the grouper's hidden layer, embedding of a device."""


class Sample(NamedTuple):
    """Choices drawn from a policy, and the log probability of all that belong together."""

    choice: Tensor
    log_probability: Tensor


class Grouper(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A softmax over groups for each op, from its features, through one hidden layer.

    Examples
    --------
    >>> grouper = Grouper(num_kinds=3, num_numbers=2, num_groups=4)
    >>> sample = grouper(torch.tensor([0, 2]), torch.zeros(2, 2))
    >>> sample.choice.shape, sample.log_probability.shape
    (torch.Size([2]), torch.Size([]))
    """

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
    """A sequence to sequence network: a bidirectional LSTM reads groups, one with attention writes.

    Examples
    --------
    >>> placer = GroupPlacer(num_features=5, num_devices=2, width=8)
    >>> sample = placer(torch.zeros(3, 5), 4)
    >>> sample.choice.shape, sample.log_probability.shape
    (torch.Size([4, 3]), torch.Size([4]))
    """

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
        """Draw so many placements of G groups with features (G, F)."""
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
