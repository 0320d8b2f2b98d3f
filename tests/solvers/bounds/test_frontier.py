"""Labels of frontiers: never above an optimum, and far above paths where memory cuts."""

from collections import Counter

import pytest
from draws import draw
from draws.binding_memory import binding_instance
from draws.bottlenecks import bottleneck_instance
from draws.training_steps import mirrored_instance, two_servers_instance
from draws.twins import single_and_paired_instance
from references.brute_force import MAKESPAN_SEMANTICS, oracle

from placegap.instances import Device, Edge, Instance, Makespan, Op, load_corpus
from placegap.instances.problem.additive_memory import relax_memory
from placegap.solvers import run_method
from placegap.solvers.bounds import frontier_paths as frontier
from placegap.solvers.bounds.frontier_paths import frontier_bound, least_below, steps_of


def block(*, memory: int, mirrored: bool = False) -> Instance:
    """An op `in` of which `a` and `out` read; a, b and c are a row, and `out` reads c as well. Each
    takes 1 ns and holds a byte. What `in` sends takes 10 ns, and each other tensor 2 ns.
    """
    edges = [("in", "a", 10), ("in", "out", 10), ("a", "b", 2), ("b", "c", 2), ("c", "out", 2)]
    names = ["in", "a", "b", "c", "out"]
    ops = [Op(name=x, time_ns={"gpu": 1}, resident_bytes=1, colocation=x) for x in names]
    if mirrored:
        ops += [Op(name=f"{x}'", time_ns={"gpu": 1}, colocation=x) for x in reversed(names)]
        edges += [(f"{y}'", f"{x}'", size) for x, y, size in edges] + [("out", "out'", 0)]
    tensors = [Edge(producer=x, consumer=y, bytes=size) for x, y, size in edges]
    gpus = draw.devices(["gpu"] * 2, lambda k: memory)
    return draw.instance_of("block", ops, tensors, gpus, draw.fast_links(gpus))


@pytest.mark.parametrize(
    ("memory", "mirrored", "least"),
    [
        # all on one device
        (5, False, 5),
        # one op is elsewhere; b is the cheapest: 5 ns, and 2 + 2 ns there and back
        (4, False, 5 + 4),
        # and both ways in a training step
        (4, True, 2 * (5 + 4)),
        # two are elsewhere: b and c (or a and b), sent there and back by 2 ns each
        (3, False, 5 + 4),
    ],
)
def test_an_edge_that_skips_keeps_what_crosses_inside_honest(
    memory: int, mirrored: bool, least: int
) -> None:
    instance = block(memory=memory, mirrored=mirrored)
    steps = steps_of(instance, Makespan())
    found = least_below(steps, 10**6)
    assert (found.ns, found.joined) == (least, False)
    # some plan is as good, so that it is the optimum
    assert run_method(instance, Makespan(), "decomposition").value_ns == least


def test_a_device_that_is_left_is_forgotten() -> None:
    # a row of four bytes on two devices of two: d0, d0, d1, d1 sends once. With room for one each,
    # no plan exists, but the row may go from one device to the other and back: 4 + 3 * 5 ns
    ops = [Op(name=x, time_ns={"gpu": 1}, resident_bytes=1) for x in "abcd"]
    for memory, least in ((2, 4 + 5), (1, 4 + 3 * 5)):
        devices = [Device(name=x, kind="gpu", memory_bytes=memory) for x in ("d0", "d1")]
        found = least_below(steps_of(draw.row(ops, devices, bytes=5), Makespan()), 10**6)
        assert found.ns == least


def row_on_servers(slow: int) -> Instance:
    """Four ops of a byte in a row, on two servers of two devices, each with room for one. Tensors
    take 1 ns within a server, and `slow` between two.
    """
    ops = [Op(name=x, time_ns={"gpu": 1}, resident_bytes=1) for x in "abcd"]
    devices = draw.devices(["gpu"] * 4, lambda k: 1)
    links = draw.links(4, lambda a, b: (10**9 * (slow if a // 2 == b // 2 else 1), 0))
    edges = draw.row(ops, devices, bytes=slow).graph.edges
    return draw.instance_of("row", ops, edges, devices, links)


def test_what_a_server_holds_is_not_forgotten() -> None:
    # two ops fit on either server, so that the row crosses once: 4 + 1 + 10 + 1 ns. Without pools
    # it could go from d0 to d1 and back: 4 + 3 ns
    row = row_on_servers(10)
    steps = steps_of(row, Makespan())
    assert steps.graph.pool.tolist() == [0, 0, 1, 1]
    found = least_below(steps, 10**6)
    assert (found.ns, found.joined) == (4 + 1 + 10 + 1, False)
    assert frontier_bound(row, Makespan(), 1) == 4 + 1 + 10 + 1
    # links that are all alike make no pools
    assert len(steps_of(row_on_servers(1), Makespan()).graph.pool_room_bytes) == 0


def test_devices_that_may_be_swapped_are_not_one_if_each_is_a_pool() -> None:
    # a and c are fast on the two devices that stand alone, b on the pair, and each device has room
    # for one op: 1 + 50 + 1 + 50 + 1 ns. The second single device is not full when c is placed,
    # though the first, which is like it, is
    ops = [
        Op(name=x, time_ns={"single": fast, "pair": 1001 - fast}, resident_bytes=1)
        for x, fast in (("a", 1), ("b", 1000), ("c", 1))
    ]
    devices = draw.devices(["single", "single", "pair", "pair"], lambda k: 1)
    links = draw.links(4, lambda a, b: (10**9 if a + b == 5 else 10**8, 0))
    edges = draw.row(ops, devices, bytes=5).graph.edges
    row = draw.instance_of("row", ops, edges, devices, links)
    assert oracle(row, Makespan()) == 103
    assert frontier_bound(row, Makespan(), 0) == 103


def edges_of(*pairs: tuple[str, str]) -> tuple[Edge, ...]:
    return tuple(Edge(producer=x, consumer=y, bytes=3) for x, y in pairs)


def of_unlike_devices(names: list[str], edges: tuple[Edge, ...], devices: int) -> Instance:
    """Ops of a byte on devices of unlike memory."""
    ops = [Op(name=x, time_ns={"gpu": 5}, resident_bytes=1) for x in names]
    gpus = draw.devices(["gpu"] * devices, lambda k: 5 + k)
    return draw.instance_of("unlike", ops, edges, gpus, draw.fast_links(gpus))


def test_wide_graphs_have_no_tables_of_pairs() -> None:
    # 300 ops side by side: all of them stay open until the last op is placed, and between no two
    # of them there is a way. A number for each pair would be 8 * 300**3 / 3 = 72 MB
    names = [f"m{i}" for i in range(300)]
    edges = edges_of(*(("in", x) for x in names), *((x, "out") for x in names))
    steps = steps_of(of_unlike_devices(["in", *names, "out"], edges, 2), Makespan())
    assert max(len(frontier.ops) for frontier in steps.frontiers) == 300
    assert sum(frontier.between.size for frontier in steps.frontiers) == 0


def test_of_many_unlike_devices_fewer_places_are_remembered() -> None:
    # each op reads the five before it. 16 unlike devices for five places are 16**5 = 1 million
    # signatures, and gigabytes of labels; for three they are 4,096
    pairs = [(f"o{i}", f"o{j}") for i in range(12) for j in range(i + 1, min(12, i + 6))]
    row = of_unlike_devices([f"o{i}" for i in range(12)], edges_of(*pairs), 16)
    steps = steps_of(row, Makespan())
    assert max(len(frontier.places) for frontier in steps.frontiers) == 3


def test_where_labels_grow_too_many_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = block(memory=4)
    steps = steps_of(instance, Makespan())
    monkeypatch.setattr(frontier, "MOST_CELLS", 0)  # two labels after the second op: d0 or d1
    assert least_below(steps, 10**6) is None
    assert frontier_bound(instance, Makespan(), 9) == 9


MOST_TRANSFERS = 10
"""The oracle orders no more."""


def compare(seed: int, seen: Counter[str]) -> None:
    semantics = MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)]
    for make in (
        mirrored_instance,
        bottleneck_instance,
        binding_instance,
        two_servers_instance,
        single_and_paired_instance,
    ):
        instance = make(seed)
        if len(instance.graph.edges) > MOST_TRANSFERS:
            continue
        optimum = oracle(instance, semantics)
        if optimum is None:
            continue
        relaxed, _ = relax_memory(instance, semantics)
        assert frontier_bound(relaxed, semantics, 0) <= optimum, (make.__name__, seed)
        found = least_below(steps_of(relaxed, semantics), relaxed.arrays.serial_horizon_ns + 2)
        assert found.ns <= optimum, (make.__name__, seed)
        few = least_below(
            steps_of(relaxed, semantics), relaxed.arrays.serial_horizon_ns + 2, rows=1
        )
        assert few.ns <= found.ns, (make.__name__, seed)
        seen["all"] += 1
        seen["tight"] += found.ns == optimum
        seen["lower"] += few.ns < found.ns


def test_no_label_is_above_the_optimum() -> None:
    seen = Counter[str]()
    for seed in range(10):
        compare(seed, seen)
    assert seen["tight"] > seen["all"] // 4
    assert seen["lower"]  # joined labels prove less


@pytest.mark.deep
@pytest.mark.parametrize("first", range(100, 500, 100))
def test_no_label_is_above_the_optimum_of_hundreds(first: int) -> None:
    for seed in range(first, first + 100):
        compare(seed, Counter())


def test_memory_forces_crossings_of_a_residual_network() -> None:
    # the best plan known takes 3005.3 ms; paths and work prove 811
    instance = load_corpus("resnet-50-layers-train").instance()
    bound_ns = frontier_bound(instance, Makespan(), 10**9)
    assert 2_790_000_000 < bound_ns <= 3_005_280_131
