"""The runs of the table: five corpus graphs with proven optima, and unseen graphs of a family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import TypedDict

from pydantic import BaseModel

from placegap.experiments.research.learned.table import run_search
from placegap.instances.corpus.corpus import best_known, load_corpus
from placegap.instances.corpus.generate import generate
from placegap.instances.io.cluster_file import load_cluster
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Makespan
from placegap.instances.reading.errors import InputError
from placegap.solvers.solving.solve import solve

CLUSTER = "celeritas-4xV100-pcie"
"""Four equal devices, for which the policy that ships was trained."""

POLICY, POLICY_NODES = "blocks-4", 32

TRAINING_SEEDS, UNSEEN_SEEDS = range(100, 108), range(5)
"""Random numbers of the family's graphs: those of the training, and those that it never saw."""


@dataclass(frozen=True)
class Case:
    """A graph of the corpus on a cluster, whose least makespan is known."""

    graph: str
    cluster: str

    @property
    def instance(self) -> Instance:
        """The graph with times for the cluster."""
        return load_corpus(self.graph).instance(load_cluster(self.cluster))

    @property
    def optimum_ns(self) -> int:
        """The proven optimum."""
        known = best_known(self.graph, self.cluster, Makespan())
        if known is None or known.value_ns is None or known.value_ns != known.bound_ns:
            raise InputError(f"no optimum of {self.graph} on {self.cluster} is proven")
        return known.value_ns


CASES = (
    Case("inception_v1", "celeritas-4xV100-pcie"),
    Case("inception_v2", "celeritas-4xV100-pcie"),
    Case("squeezenet", "moirai-intra-server"),
    Case("resnet50", "moirai-intra-server"),
    Case("shufflenet", "moirai-intra-server"),
)
"""On these one device alone is 1.7 % to 65 % above the optimum."""


class Identity(TypedDict):
    """What identifies a run."""

    graph: str
    cluster: str
    search: str
    evaluations: int
    seed: int


class LearnedRun(BaseModel):
    """A run as the log has it; `curve` has (evaluated, mean_ns, best_ns) of every update."""

    graph: str
    cluster: str
    search: str
    evaluations: int
    seed: int
    optimum_ns: int
    random_ns: int
    value_ns: int | None
    start_ns: float
    seconds: float
    curve: list[tuple[int, float, int | None]]

    @property
    def gap(self) -> float | None:
        """How far the value is above the optimum."""
        return None if self.value_ns is None else self.value_ns / self.optimum_ns - 1


def run_case(case: Case, search: str, evaluations: int, seed: int) -> dict[str, object]:
    """Run one search; what it found, for the log."""
    instance = case.instance
    found = run_search(search, instance, evaluations, seed)
    random_ns = solve(instance, Makespan(), "random", seed=seed).value_ns
    return {
        **asdict(found),
        "curve": [list(asdict(point).values()) for point in found.curve],
        "optimum_ns": case.optimum_ns,
        "random_ns": random_ns,
    }


@dataclass(frozen=True)
class Unseen:
    """One graph of the family, and makespans in ns of several ways to place it."""

    name: str
    num_ops: int
    one_device_ns: int
    random_ns: int
    untrained_ns: int
    trained_ns: int
    annealing_ns: int
    seconds: float

    def cells(self) -> list[str]:
        """A row of the table, in percent of one device alone."""
        times = (self.random_ns, self.untrained_ns, self.trained_ns, self.annealing_ns)
        shares = [f"{time / self.one_device_ns:.1%}" for time in times]
        own = f"{self.one_device_ns / 1e6:.2f} ms"
        return [self.name, str(self.num_ops), own, *shares, f"{self.seconds:.2f}"]


def family_graph(seed: int) -> Instance:
    """A graph of the family: blocks with branches, of other sizes for other seeds.

    Examples
    --------
    >>> family_graph(0).num_ops, family_graph(1).num_ops
    (22, 53)
    """
    sizes = {"blocks": 3 + seed % 4, "branches": 3 + seed % 3, "length": 2 + seed % 2}
    cluster = load_cluster(CLUSTER)
    kinds = {device.kind: 1.0 for device in cluster.devices}
    graph = generate("blocks", {**sizes, "kinds": kinds, "communication_ratio": 0.1}, seed=seed)
    return Instance(name=graph.name, graph=graph, cluster=cluster)


def unseen_graphs() -> Iterator[tuple[str, Instance]]:
    """Graphs of the family that the policy was not trained on."""
    for seed in UNSEEN_SEEDS:
        yield f"blocks seed {seed}", family_graph(seed)


def run_unseen(name: str, instance: Instance) -> Unseen:
    """Place a graph by the trained policy, once, and by others.

    Random placements are as many as the policy tries: one per node. Annealing tries as many, too.
    """

    def value(method: str, params: dict[str, object] | None = None, seed: int = 0) -> int:
        found = solve(instance, Makespan(), method, params, seed=seed)
        if found.value_ns is None:
            raise InputError(f"{name}: {method}: {found.message}")
        return found.value_ns

    once: dict[str, object] = {"nodes": POLICY_NODES, "train": False}
    began = solve(instance, Makespan(), "placeto", {**once, "policy": POLICY})
    untrained = [value("placeto", once, seed) for seed in range(5)]
    searched = run_search("random search", instance, POLICY_NODES + 1, 0).value_ns
    annealed = run_search("annealing", instance, POLICY_NODES + 1, 0).value_ns
    if began.value_ns is None or searched is None or annealed is None:
        raise InputError(f"{name}: {began.message or 'no plan fits'}")
    return Unseen(
        name,
        instance.num_ops,
        value("single-device"),
        searched,
        int(median(untrained)),
        began.value_ns,
        annealed,
        began.solve_s,
    )
