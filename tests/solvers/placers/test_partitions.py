"""metis, mt-kahypar and scotch: parts, their devices, and what memory makes of them."""

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from draws import draw

from placegap.instances import Edge, Instance, MaxLoad, Op
from placegap.instances.problem.nets import build_nets
from placegap.solvers import METHODS, Task, run_method
from placegap.solvers.core.registry import why_not
from placegap.solvers.placers import partitioners
from placegap.solvers.placers.movable_units import free_units
from placegap.solvers.placers.partitioners import mend

ANY = MaxLoad(plans="any")


def two_cliques(memory: tuple[int | None, int | None] = (None, None), fast: int = 1) -> Instance:
    """a0..a3 and b0..b3, each joined by heavy tensors, and one light tensor between them.

    Ops take 10 ns and 2 bytes; on the second device a `fast`-th of the time.
    """
    names = [f"{x}{i}" for x in "ab" for i in range(4)]
    ops = [Op(name=n, time_ns={"g": 10, "f": 10 // fast}, resident_bytes=2) for n in names]
    edges = [
        Edge(producer=p, consumer=c, bytes=50)
        for x in "ab"
        for p, c in combinations([n for n in names if n[0] == x], 2)
    ]
    edges.append(Edge(producer="a3", consumer="b0", bytes=1))
    devices = draw.devices("gf", memory.__getitem__)
    return draw.instance_of("cliques", ops, edges, devices, draw.fast_links(devices))


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
    a, b = result.plan.placement[0], result.plan.placement[4]
    assert a != b
    assert result.plan.placement == (a,) * 4 + (b,) * 4
    assert result.value_ns == 4 * 10 + 1


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
    assert plan.devices.tolist() == own
    assert next(made, None) is None


def halves(parting: partitioners.Parting) -> np.ndarray:
    return np.repeat([0, 1], 4)


@pytest.mark.parametrize("parts", [[0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0, 0]])
def test_the_heaviest_part_goes_to_the_device_that_is_done_with_it_first(parts: list[int]) -> None:
    task = Task(two_cliques(fast=2), ANY)
    outcome = partitioners.place_parts(task, lambda parting: np.array(parts))
    assert outcome.plan.devices.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]


def parting_of(instance: Instance) -> partitioners.Parting:
    """What a partitioner is given."""
    seen = []

    def look(parting: partitioners.Parting) -> np.ndarray:
        seen.append(parting)
        return halves(parting)

    partitioners.place_parts(Task(instance, ANY), look)
    return seen[0]


def test_shares_follow_the_speeds() -> None:
    # 10 and 5 ns, 7.5 on average: speeds of 0.75 and 1.5
    assert parting_of(two_cliques(fast=2)).share == pytest.approx([1 / 3, 2 / 3], abs=1e-3)


def test_an_edge_of_the_graph_weighs_each_tensor_once() -> None:
    pointer, neighbour, weight = parting_of(two_cliques()).graph()
    assert np.diff(pointer).tolist() == [3, 3, 3, 4, 4, 3, 3, 3]
    at = {int(v): int(w) for v, w in zip(neighbour[9:13], weight[9:13], strict=True)}
    # in all 12 * 50 + 1 = 601 ns
    unit = partitioners.TOTAL / 601
    assert at == {v: int(50 * unit) + 1 for v in (0, 1, 2)} | {4: int(unit) + 1}


def test_scotch_reads_weights_degrees_and_neighbours() -> None:
    text = partitioners.graph_file(parting_of(two_cliques()), np.arange(8)).splitlines()
    assert text[:3] == ["0", "8 26", "0 011"]
    assert text[3].split()[:2] == [str(partitioners.TOTAL // 8 + 1), "3"]
    assert text[3].split()[3::2] == ["1", "2", "3"]


def test_scotch_reads_the_same_graph_under_other_numbers() -> None:
    # vertex 0, with neighbours 1, 2 and 3, is the last one if they are numbered backwards
    text = partitioners.graph_file(parting_of(two_cliques()), np.arange(8)[::-1]).splitlines()
    assert text[-1].split()[3::2] == ["6", "5", "4"]


def test_a_seed_numbers_the_vertices_of_scotch_and_the_parts_stay_theirs() -> None:
    skip_unless_installed("scotch")
    for seed in range(3):  # cutting between the cliques is best under all numbers
        result = run_method(two_cliques(), ANY, "scotch", seed=seed)
        parts = [k for (k,) in result.plan.placement]
        assert len(set(parts[:4])) == len(set(parts[4:])) == 1 != len(set(parts))


def test_memory_is_mended_by_the_smallest_unit_that_suffices() -> None:
    # d0 holds 7 of 8 bytes: one op of 2 bytes moves to d1, which holds 12
    outcome = partitioners.place_parts(Task(two_cliques((7, 12)), ANY), halves)
    assert sum(k == 1 for (k,) in outcome.plan.placement) == 5
    assert outcome.details["mended"] == 1
    outcome = partitioners.place_parts(Task(two_cliques((7, 9)), ANY), halves)
    assert outcome.plan is None
    assert outcome.message.startswith("memory: op ")


def test_metis_may_count_edges_and_leave_what_does_not_fit() -> None:
    skip_unless_installed("metis")
    # 8 bytes per clique, 4 on the second device: two ops would move
    params = {"mend": False, "edges": "count"}
    result = run_method(two_cliques(memory=(None, 4)), ANY, "metis", params)
    assert result.plan is None
    assert "holds 8 B, 4 B more than its 4 B" in result.message


def test_a_unit_moves_off_a_device_that_cannot_run_it() -> None:
    times = [{"f": 10}, *({"g": 10, "f": 10} for _ in range(7))]
    instance = draw.with_ops(two_cliques(), time_ns=times)
    units = free_units(instance)
    nets = build_nets(instance, units.block)
    state, moved, stuck = mend(instance, units, nets, np.zeros(8, np.int64), overlap=False)
    assert (state.device.tolist(), moved, stuck) == ([1, 0, 0, 0, 0, 0, 0, 0], 1, None)
