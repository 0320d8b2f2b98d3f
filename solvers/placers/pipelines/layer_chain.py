"""A graph as a chain of layers: what planners of pipelines of layers start from."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.nets import build_nets
from placegap.solvers.chains.problem import ACCELERATOR, ChainProblem, CutNets


@dataclass(frozen=True, eq=False)
class Layers:
    """l layers in their order, on the two kinds of devices of a `ChainProblem`.

    Attributes
    ----------
    layer : (n,) int64
        Layer of each op.
    time, need : (2, l) int64
        As in `ChainProblem`.
    parameter_bytes : (l,) int64
    nets : CutNets
        Over layers.
    """

    layer: Ints
    time: Ints
    need: Ints
    parameter_bytes: Ints
    nets: CutNets

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return len(self.parameter_bytes)


def chain_of(instance: Instance, problem: ChainProblem, *, merge: bool) -> Layers:
    """Make the blocks of an instance layers, in a topological order.

    Parameters
    ----------
    instance : Instance
    problem : ChainProblem
    merge : bool
        Whether blocks from which branches lead apart and together again become one layer:
        of each biconnected component of the undirected graph, all tails of its arcs (as in the
        reference program of Tarnawski et al., ``-pipeDream``).
    """
    blocks = problem.blocks
    label = _merged(problem) if merge else np.arange(blocks.num_blocks)
    position = _positions(label, blocks.arc_tail, blocks.arc_head)
    l = int(position.max()) + 1  # noqa: E741
    time, need = np.zeros((2, l), np.int64), np.zeros((2, l), np.int64)
    for kind in range(2):
        np.add.at(time[kind], position, problem.time[kind])
        np.add.at(need[kind], position, problem.need[kind])
    layer = position[blocks.block]
    parameters = np.zeros(l, np.int64)
    np.add.at(parameters, layer, [op.parameter_bytes for op in instance.graph.ops])
    nets = build_nets(instance, layer)
    own = problem.devices[ACCELERATOR]
    weight = nets.weight_ns[:, own[0]].copy() if own else np.zeros(nets.num_nets, np.int64)
    cut_nets = CutNets(nets.block_ptr.copy(), nets.net.copy(), np.diff(nets.net_ptr), weight)
    return Layers(layer, time, need, parameters, cut_nets)


def _merged(problem: ChainProblem) -> Ints:
    """A label of each block: that of the blocks it becomes one layer with."""
    arcs = list(
        zip(problem.blocks.arc_tail.tolist(), problem.blocks.arc_head.tolist(), strict=True)
    )
    graph, known = nx.Graph(arcs), set(arcs)
    union = nx.utils.UnionFind(range(problem.num_blocks))
    for component in nx.biconnected_component_edges(graph):
        tails = sorted({a if (a, b) in known else b for a, b in component})
        union.union(*tails)
    return np.array([union[v] for v in range(problem.num_blocks)], np.int64)


def _positions(label: Ints, tail: Ints, head: Ints) -> Ints:
    """Place of each block's layer in a topological order of the layers; cycles become one."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(label.tolist())
    graph.add_edges_from(
        (a, b) for a, b in zip(label[tail].tolist(), label[head].tolist(), strict=True) if a != b
    )
    whole = nx.condensation(graph)
    first = {node: min(whole.nodes[node]["members"]) for node in whole}
    order = nx.lexicographical_topological_sort(whole, key=first.__getitem__)
    position = {}
    for place, node in enumerate(order):
        for member in whole.nodes[node]["members"]:
            position[member] = place
    return np.array([position[at] for at in label.tolist()], np.int64)
