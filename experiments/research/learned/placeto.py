"""`placeto` on one instance: its policy, files of policies, episodes and REINFORCE.

The policy passes messages over the graph, sums up what is around one node, and has a head for it.
Everything is dense, (B, N, d) for B states of one graph: graphs are merged to at most hundreds of
nodes. A policy is for a number of devices: its features distinguish them, and its head names them;
its file has weights in JSON, compressed, a few dozen kB. Every step of an episode is one visit of
one node, and one simulation.
"""

from __future__ import annotations

import gzip
import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from placegap.experiments.research.learned.evaluations import (
    Evaluations,
    Trial,
    cost,
    seeded,
    usual_evaluations,
)
from placegap.experiments.research.learned.params import MOST_NODES, PlacetoParams
from placegap.experiments.research.learned.placeto_nodes import (
    STATIC_FEATURES,
    PlacetoNodes,
    features,
    nodes_of,
    start_of,
)
from placegap.instances.files.document import read_json
from placegap.instances.kernels.array_types import Floats, Ints
from placegap.instances.problem import Makespan
from placegap.instances.reading.errors import InputError, from_validation_error, instead_of
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.method import Task
from placegap.solvers.core.result import Outcome

# Factor of the initial weights of logits, and of what is summed over several nodes.
GATHERED, FIRST_LOGITS = 0.3, 0.1


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
    """Logits over the devices for the current node of each state."""

    def __init__(self, num_features: int, num_devices: int, rounds: int) -> None:
        # All rounds of message passing have the same weights.
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


FOLDER = Path(__file__).resolve().with_name("policies")
SUFFIX = ".json.gz"
DIGITS = 4  # significant digits of a weight


class PolicyFile(BaseModel):
    """What a file of a policy holds."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    #: num_devices, rounds: What the policy was built for.
    num_devices: int = Field(ge=1, le=1_000)
    rounds: int = Field(ge=1, le=64)
    #: Graphs, cluster and numbers of its training, for people.
    trained_on: str = ""
    #: Each tensor, flat.
    weights: dict[str, list[float]]


def new_policy(num_devices: int, rounds: int) -> PlacetoPolicy:
    """An untrained policy, by torch's random numbers."""
    return PlacetoPolicy(STATIC_FEATURES + num_devices, num_devices, rounds)


def shipped() -> tuple[str, ...]:
    """Names of the policies that are at hand."""
    return tuple(sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob("*" + SUFFIX)))


def save_policy(policy: PlacetoPolicy, path: str | Path, num_devices: int, trained_on: str) -> None:
    """Write a policy; equal policies give equal bytes."""
    weights = {
        name: [float(f"{value:.{DIGITS}g}") for value in tensor.flatten().tolist()]
        for name, tensor in policy.state_dict().items()
    }
    content = PolicyFile(
        num_devices=num_devices, rounds=policy.rounds, trained_on=trained_on, weights=weights
    )
    data = json.dumps(content.model_dump(), separators=(",", ":")).encode()
    Path(path).write_bytes(gzip.compress(data, mtime=0))


def load_policy(name: str, num_devices: int) -> PlacetoPolicy:
    """A policy of `policies`, by name, or that of a file."""
    path = FOLDER / (name + SUFFIX)
    if name not in shipped():
        path = Path(name)
        if not path.is_file():
            hint = instead_of(name, shipped())
            raise InputError(f"no policy or file {name!r}{hint}")
    content = _read(path)
    if content.num_devices != num_devices:
        raise InputError(
            f"the policy is for {content.num_devices} devices, the cluster has {num_devices};"
            " train one for these",
            path,
        )
    policy = new_policy(num_devices, content.rounds)
    state: dict[str, Any] = policy.state_dict()
    try:
        policy.load_state_dict(
            {
                key: torch.tensor(values).reshape(state[key].shape)
                for key, values in content.weights.items()
            }
        )
    except (KeyError, RuntimeError):
        raise InputError(
            "the weights are not those of a policy of this version; train it anew", path
        ) from None
    return policy


def _read(path: Path) -> PolicyFile:
    raw = read_json(path)
    try:
        return PolicyFile.model_validate(raw)
    except ValidationError as error:
        raise from_validation_error(error, raw, path) from None


BASELINE_UPDATES = 10  # updates over which the mean return of a step is its baseline
# Share of the learning rate that is left at the end, and what gradients are clipped at.
LAST_RATE_SHARE, LARGEST_NORM = 0.1, 1.25


class Tuning(NamedTuple):
    """How a policy is trained: updates, episodes of each, Adam's rate and entropy at the start."""

    updates: int
    workers: int
    learning_rate: float
    entropy: float


class Episodes(NamedTuple):
    """Several episodes of V steps that ran side by side."""

    # `states` (V, W, N, features), `current` (V,), `chosen` (V, W) devices; `costs` (V + 1, W) with
    # that of the start.
    states: Tensor
    current: Ints
    chosen: Tensor
    costs: Floats


class Placeto:
    """One instance that a policy plays episodes on, from the devices of the nodes in `start`."""

    def __init__(
        self, nodes: PlacetoNodes, tried: Evaluations, policy: PlacetoPolicy, start: Ints
    ) -> None:
        self.nodes, self.tried, self.policy, self.start = nodes, tried, policy, start
        self.graph: GraphTensors = graph_tensors(nodes)
        self.returns: deque[Floats] = deque(maxlen=BASELINE_UPDATES)
        self.start_trial, self.start_times = self._run(start)
        self.scale_ns = float(max(1, self.start_trial.time_ns))

    def advantage(self, episodes: Episodes) -> Floats:
        """What each step is good for, (V, W), minus its mean over the last updates."""
        # That is the cost before it minus the least cost after it: Placeto's variant for searches,
        # whose best placement counts, not the last one.
        least_later = np.minimum.accumulate(episodes.costs[:0:-1])[::-1]
        found: Floats = episodes.costs[:-1] - least_later
        self.returns.append(found)
        baseline: Floats = np.concatenate(list(self.returns), axis=1).mean(axis=1, keepdims=True)
        return np.subtract(found, baseline)

    def play(self, workers: int, clock: Clock, *, greedy: bool = False) -> Episodes:
        """Let the policy visit every node once, in several episodes side by side."""
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
    """Update the policy that some instances share, each time after episodes on the next of them."""
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
    """REINFORCE: minus the mean of advantage x log probability, and of the entropy."""
    # The advantage of a step is its return minus the baseline, (V, W); `entropy` is a coefficient.
    steps, workers = advantage.shape
    current = torch.from_numpy(np.repeat(episodes.current, workers))
    logits = policy(graph, episodes.states.flatten(0, 1), current)
    log_probability = logits.log_softmax(-1)
    taken = log_probability.gather(-1, episodes.chosen.reshape(-1, 1)).squeeze(-1)
    gain = torch.from_numpy(advantage.reshape(steps * workers).astype(np.float32))
    spread = -(log_probability.exp() * log_probability.clamp(min=-1e9)).sum(-1)
    return -(gain * taken).mean() - entropy * spread.mean()


def run(task: Task[Makespan], params: PlacetoParams) -> Outcome:
    """The best placement that training on the instance ever tried (`run_placeto`)."""
    budget = params.evaluations or usual_evaluations(task.instance)
    tried = Evaluations(task.instance, task.semantics, budget, "placeto")
    return tried.outcome(learn(task, params, tried))


def learn(task: Task[Makespan], params: PlacetoParams, tried: Evaluations) -> str:
    """Train within the budget of `tried`; why it ended early, or an empty text."""
    # A policy that was given first places each node once; the last episode takes the likeliest
    # device of each node.
    clock = task.limits.clock()
    nodes = nodes_of(task.instance, params.nodes)
    if len(nodes.first_op) > MOST_NODES:
        return f"the graph cannot be merged below {len(nodes.first_op)} nodes"
    num_devices = task.instance.num_devices
    with seeded(task.limits.seed):
        if params.policy is None:
            policy = new_policy(num_devices, params.rounds)
        else:
            policy = load_policy(params.policy, num_devices)
        start = start_of(nodes, params.start, task.limits.seed)
        learner = Placeto(nodes, tried, policy, start)
        steps = len(nodes.visits)
        try:
            if params.policy is not None or not params.train:
                learner.play(1, clock, greedy=True)
            if params.train:
                updates = max(0, tried.left - steps) // (steps * params.workers)
                tuning = Tuning(updates, params.workers, params.learning_rate, params.entropy)
                train([learner], tuning, clock)
                if tried.left >= steps:
                    learner.play(1, clock, greedy=True)
        except LimitReached as reached:
            return str(reached)
    return ""
