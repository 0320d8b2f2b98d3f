"""metis, mt-kahypar and scotch: parts, their devices, and what memory makes of them."""

from __future__ import annotations

from itertools import combinations, permutations
from types import SimpleNamespace

import numpy as np
import pytest
from references.brute_force import (
    MAKESPAN_SEMANTICS,
    MAX_LOAD_SEMANTICS,
    makespan_draws,
    max_load_draws,
    oracle,
)

from placegap.instances import Cluster, Device, Edge, Graph, InputError, Instance, Link, MaxLoad, Op
from placegap.instances.problem.nets import build_nets
from placegap.solvers import METHODS, Task, run_method
from placegap.solvers.core import method as extras
from placegap.solvers.core.registry import why_not
from placegap.solvers.placers import partitioners
from placegap.solvers.placers.movable_units import free_units
from placegap.solvers.placers.partitioners import mend

ANY = MaxLoad()
CHAIN = MaxLoad(plans="chain")


def two_cliques(memory: tuple[int | None, int | None] = (None, None), fast: int = 1) -> Instance:
    """a0..a3 and b0..b3, each joined by heavy tensors, and one light tensor between them.

    Ops take 10 ns and 2 bytes; on the second device a `fast`-th of the time.
    """
    names = [f"{x}{i}" for x in "ab" for i in range(4)]
    ops = tuple(Op(name=n, time_ns={"g": 10, "f": 10 // fast}, resident_bytes=2) for n in names)
    edges = [
        Edge(producer=p, consumer=c, bytes=50)
        for x in "ab"
        for p, c in combinations([n for n in names if n[0] == x], 2)
    ]
    edges.append(Edge(producer="a3", consumer="b0", bytes=1))
    devices = (
        Device(name="d0", kind="g", memory_bytes=memory[0]),
        Device(name="d1", kind="f", memory_bytes=memory[1]),
    )
    links = tuple(
        Link(source=x.name, target=y.name, bandwidth_bytes_per_s=10**9)
        for x, y in permutations(devices, 2)
    )
    return Instance(
        name="cliques",
        graph=Graph(name="cliques", ops=ops, edges=tuple(edges)),
        cluster=Cluster(name="two", devices=devices, links=links),
    )


def skip_unless_installed(name: str) -> None:
    method = METHODS[name]
    reason = why_not(method, Task(two_cliques(), ANY), method.params())
    if reason is not None:
        pytest.skip(reason)


by_name = pytest.mark.parametrize("name", ["metis", "mt-kahypar", "scotch"])


@by_name
def test_what_is_joined_stays_together(name: str) -> None:
    skip_unless_installed(name)
    result = run_method(two_cliques(), ANY, name)
    assert result.plan is not None
    a, b = result.plan.placement[0], result.plan.placement[4]
    assert a != b
    assert result.plan.placement == (a,) * 4 + (b,) * 4
    assert result.value_ns == 4 * 10 + 1


@by_name
def test_plans_are_accepted_and_no_better_than_the_optimum(name: str) -> None:
    skip_unless_installed(name)
    draws = [(instance, MAX_LOAD_SEMANTICS[:2]) for instance in max_load_draws()[:16]]
    draws += [(instance, MAKESPAN_SEMANTICS) for instance in makespan_draws()[:16]]
    found = 0
    for number, (instance, rules) in enumerate(draws):
        semantics = rules[number % len(rules)]
        result, best = run_method(instance, semantics, name), oracle(instance, semantics)
        if result.value_ns is None:
            assert result.message.startswith("memory: "), result.message
            continue
        assert best is not None
        assert result.value_ns >= best
        found += 1
    assert found >= 25


def test_metis_runs_until_two_runs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    # a thread of another library that draws from the C generator changes what METIS makes of a seed
    skip_unless_installed("metis")
    disturbed, own = [0, 1] * 4, [0] * 4 + [1] * 4
    made = iter([disturbed, own, own])
    package = partitioners.import_module("pymetis")
    monkeypatch.setattr(
        package, "part_graph", lambda *_, **__: SimpleNamespace(vertex_part=next(made))
    )
    plan = run_method(two_cliques(), ANY, "metis").plan
    assert plan is not None
    assert plan.devices.tolist() == own
    assert next(made, None) is None


@by_name
def test_chains_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="neither convex nor chains: not max_load chain add"):
        run_method(two_cliques(), CHAIN, name)


@pytest.mark.parametrize(("name", "hint"), [("metis", "metis"), ("mt-kahypar", "kahypar")])
def test_a_package_that_is_missing_is_named(
    name: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda package: None)
    package = {"metis": "pymetis", "kahypar": "mtkahypar"}[hint]
    message = rf"needs {package}: pip install 'placegap\[{hint}\]'"
    with pytest.raises(InputError, match=message):
        run_method(two_cliques(), ANY, name)


def test_the_program_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioners.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="needs Scotch's program gpart on the PATH"):
        run_method(two_cliques(), ANY, "scotch")


def halves(parting: partitioners.Parting) -> np.ndarray:
    return np.repeat([0, 1], 4)


def test_the_heaviest_part_goes_to_the_device_that_is_done_with_it_first() -> None:
    def uneven(parting: partitioners.Parting) -> np.ndarray:
        return np.array([0, 0, 1, 1, 1, 1, 1, 1])

    outcome = partitioners.place_parts(Task(two_cliques(fast=2), ANY), uneven)
    assert outcome.plan is not None
    assert outcome.plan.devices.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    outcome = partitioners.place_parts(Task(two_cliques(fast=2), ANY), lambda p: 1 - uneven(p))
    assert outcome.plan is not None
    assert outcome.plan.devices.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]


def test_shares_follow_the_speeds() -> None:
    seen = []

    def look(parting: partitioners.Parting) -> np.ndarray:
        seen.append(parting.share)
        return halves(parting)

    partitioners.place_parts(Task(two_cliques(fast=2), ANY), look)
    # 10 and 5 ns, 7.5 on average: speeds of 0.75 and 1.5
    assert seen[0] == pytest.approx([1 / 3, 2 / 3], abs=1e-3)


def test_an_edge_of_the_graph_weighs_each_tensor_once() -> None:
    pointers = []

    def look(parting: partitioners.Parting) -> np.ndarray:
        pointers.append(parting.graph())
        return halves(parting)

    partitioners.place_parts(Task(two_cliques(), ANY), look)
    pointer, neighbour, weight = pointers[0]
    assert np.diff(pointer).tolist() == [3, 3, 3, 4, 4, 3, 3, 3]
    at = {int(v): int(w) for v, w in zip(neighbour[9:13], weight[9:13], strict=True)}
    # in all 12 * 50 + 1 = 601 ns
    unit = partitioners.TOTAL / 601
    assert at == {v: int(50 * unit) + 1 for v in (0, 1, 2)} | {4: int(unit) + 1}


def test_scotch_reads_weights_degrees_and_neighbours() -> None:
    texts = []

    def look(parting: partitioners.Parting) -> np.ndarray:
        texts.append(partitioners.graph_file(parting).splitlines())
        return halves(parting)

    partitioners.place_parts(Task(two_cliques(), ANY), look)
    assert texts[0][:3] == ["0", "8 26", "0 011"]
    assert texts[0][3].split()[:2] == [str(partitioners.TOTAL // 8 + 1), "3"]
    assert texts[0][3].split()[3::2] == ["1", "2", "3"]


def test_memory_is_mended_by_the_smallest_unit_that_suffices() -> None:
    # d0 holds 7 of 8 bytes: one op of 2 bytes moves to d1, which holds 12
    outcome = partitioners.place_parts(Task(two_cliques((7, 12)), ANY), halves)
    assert outcome.plan is not None
    assert sum(k == 1 for (k,) in outcome.plan.placement) == 5
    assert outcome.details["mended"] == 1


def test_what_cannot_be_mended_is_no_plan() -> None:
    outcome = partitioners.place_parts(Task(two_cliques((7, 9)), ANY), halves)
    assert outcome.plan is None
    assert outcome.message.startswith("memory: op ")


def test_a_unit_moves_off_a_device_that_cannot_run_it() -> None:
    instance = two_cliques()
    ops = list(instance.graph.ops)
    ops[0] = ops[0].model_copy(update={"time_ns": {"f": 10}})
    instance = instance.model_copy(
        update={"graph": instance.graph.model_copy(update={"ops": tuple(ops)})}
    )
    units = free_units(instance)
    nets = build_nets(instance, units.block)
    state, moved, stuck = mend(instance, units, nets, np.zeros(8, np.int64), overlap=False)
    assert (state.device.tolist(), moved, stuck) == ([1, 0, 0, 0, 0, 0, 0, 0], 1, None)


def test_metis_without_repair_leaves_what_does_not_fit_where_it_is() -> None:
    skip_unless_installed("metis")
    # 8 bytes per clique, 4 on the second device: two ops move, or nothing does
    tight = two_cliques(memory=(None, 4))
    assert run_method(tight, ANY, "metis").plan is not None
    result = run_method(tight, ANY, "metis", {"mend": False})
    assert result.plan is None
    assert "holds 8 bytes, 4 more than its 4" in result.message


def test_metis_cuts_the_fewest_edges_if_edges_count() -> None:
    skip_unless_installed("metis")
    # a0..a3 and b0..b3 have 6 edges each, one between them, which now is the dearest by its bytes
    drawn = two_cliques()
    edges = tuple(
        edge.model_copy(
            update={"bytes": 10**6 if edge.consumer == "b0" and edge.producer == "a3" else 1}
        )
        for edge in drawn.graph.edges
    )
    graph = drawn.graph.model_copy(update={"edges": edges})
    result = run_method(drawn.with_graph(graph), ANY, "metis", {"edges": "count"})
    assert result.plan is not None
    assert len(set(result.plan.placement[:4])) == len(set(result.plan.placement[4:])) == 1
