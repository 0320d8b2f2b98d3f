"""Runs of a chain that fit into memory: never above the optimum, and far above paths."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from draws import draw
from draws.bottlenecks import bottleneck_instance
from draws.training_steps import mirrored_instance, two_servers_instance
from references.agreement import few_and_many
from references.brute_force import MAKESPAN_SEMANTICS, oracle

from placegap.instances import Edge, Instance, Makespan, Op, load_corpus
from placegap.instances.problem.integers import NO_WAY
from placegap.instances.problem.sections import choose_chain, cuts, intervals, sections_between
from placegap.solvers import run_method
from placegap.solvers.bounds.labels.memory_runs import memory_bound
from placegap.solvers.bounds.work_windows import work_windows
from placegap.solvers.decomposition.arcs import ArcTable, Chain, interval_chain, lower_table, tiling
from placegap.solvers.decomposition.search import runs_of


def line(
    layers: int, memory: int, *, moved: list[int], devices: int = 2, slow: int = 1
) -> Instance:
    """Layers of 1 ns and 1 byte forward and backward, each on one device; a tensor after layer i
    takes ``moved[i]`` ns, either way, and `slow` times as long between even and odd devices.
    """
    names = [f"f{i}" for i in range(layers)] + [f"b{i}" for i in reversed(range(layers))]
    ops = tuple(
        Op(name=x, time_ns={"gpu": 1}, resident_bytes=1 if x[0] == "f" else 0, colocation=x[1:])
        for x in names
    )
    sizes = [*moved, 0, *reversed(moved)]
    edges = tuple(
        Edge(producer=x, consumer=y, bytes=size)
        for x, y, size in zip(names, names[1:], sizes, strict=False)
    )
    gpus = draw.devices(["gpu"] * devices, lambda k: memory)
    links = draw.links(devices, lambda a, b: (10**9 if (a - b) % 2 == 0 else 10**9 // slow, 0))
    return draw.instance_of("line", ops, edges, gpus, links)


def chains_of(instance: Instance, limit_ns: int) -> Iterator[Chain]:
    table = ArcTable(instance, Makespan())
    sections = sections_between(instance, cuts(instance))
    if len(sections) > 1:
        yield tiling(table, sections)
    for candidates in (intervals(instance), []):
        chosen = choose_chain(instance, candidates)
        if chosen:
            yield interval_chain(table, chosen, limit_ns)


def best_runs(instance: Instance) -> int:
    found = [
        runs.shortest(lower_table)[0]
        for chain in chains_of(instance, instance.arrays.serial_horizon_ns)
        if (runs := runs_of(instance, chain)) is not None
    ]
    return max(found)


def test_a_training_step_pays_both_ways_where_memory_cuts_it() -> None:
    # four layers, two to a device at most: the middle cut, forward and backward; three to a device
    # at most: any single cut, the cheapest one
    for memory, moved, least_ns in ((2, [5, 7, 5], 8 + 2 * 7), (3, [5, 7, 6], 8 + 2 * 5)):
        instance = line(4, memory, moved=moved)
        assert best_runs(instance) == least_ns
        found = run_method(instance, Makespan(), "decomposition", {"workers": 1})
        assert found.value_ns == least_ns


def test_what_does_not_fit_on_a_server_crosses_slow_links_both_ways() -> None:
    # four layers on two servers of two devices, each with room for one: three cuts, and the
    # cheapest crossing that leaves two layers on each server is the middle one
    instance = line(4, 1, moved=[5, 7, 5], devices=4, slow=10)
    assert best_runs(instance) == 8 + 2 * (5 + 10 * 7 + 5)
    assert run_method(instance, Makespan(), "decomposition", {"workers": 1}).value_ns == 168


def test_slack_memory_asks_nothing() -> None:
    chain = next(chains_of(line(4, 4, moved=[5, 7, 5]), 100))
    assert runs_of(line(4, 4, moved=[5, 7, 5]), chain) is None


def test_what_fits_in_no_way_is_proven_to() -> None:
    # one layer fits on neither device
    instance = line(2, 0, moved=[5])
    assert best_runs(instance) == NO_WAY


MOST_TRANSFERS = 8
"""Sections have up to two more, and the oracle orders ten."""


def compare(seed: int, seen: Counter[str]) -> None:
    """The bound beside the optimum."""
    for make in (mirrored_instance, bottleneck_instance, two_servers_instance):
        instance = make(seed)
        if len(instance.graph.edges) > MOST_TRANSFERS:
            continue
        semantics = MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)]
        best = oracle(instance, semantics)
        limit = instance.arrays.serial_horizon_ns if best is None else best
        windows = None if best is None else work_windows(instance, semantics)
        if best is not None and windows is not None:  # else an op may fit nowhere
            assert memory_bound(instance, windows) <= best, (make.__name__, seed)
        for chain in chains_of(instance, limit):
            runs = runs_of(instance, chain)
            if runs is not None:
                bound, path = runs.shortest(lower_table)
                assert bound >= NO_WAY or len(path) == len(chain.sections)
                assert best is None or bound <= best, (make.__name__, seed)
                dear = runs.priced(lower_table, limit).shortest(lower_table)[0]
                assert best is None or bound <= dear <= best, (make.__name__, seed)
                seen["all"] += 1
                seen["higher"] += bound > chain.shortest(lower_table)[0]
                seen["tight"] += bound == best


@few_and_many(8, 900)
def test_runs_are_never_above_the_optimum(seeds: range) -> None:
    seen = Counter[str]()
    for seed in seeds:
        compare(seed, seen)
    assert min(seen["higher"], seen["tight"]) > seen["all"] // 6


def test_memory_explains_a_training_step_over_slow_links() -> None:
    # the optimum is 44792.773710 ms (docs/corpus.md); paths and work prove 28885 ms
    bound_ns = best_runs(load_corpus("bert-24-layers-train").instance())
    assert 44_791_000_000 < bound_ns <= 44_792_773_710


def test_prices_keep_runs_from_sharing_one_device() -> None:
    # Devices d0 (3 bytes, 1 ms a layer) and d1 (9 bytes, 10 ms a layer), eight layers of a byte,
    # free transfers. Runs of three on d0 need only a layer on d1 between them. But d0 holds three,
    # so that five take 10 ms. With a price of 9 ms per byte of d0, each layer costs 10 ms, and
    # 8 * 10 - 9 * 3 = 53.
    ops = [
        Op(name=f"op{i}", time_ns={"fast": 10**6, "slow": 10**7}, resident_bytes=1)
        for i in range(8)
    ]
    edges = draw.edges(pairwise(range(8)), [0] * 8, [True] * 8, int)
    devices = draw.devices(["fast", "slow"], (3, 9).__getitem__)
    instance = draw.instance_of("row", ops, edges, devices, draw.links(2, lambda a, b: (10**9, 0)))
    chain = next(chains_of(instance, 10**9))
    runs = runs_of(instance, chain)
    # d0 three times, d1, d0 three times, d1
    assert runs.shortest(lower_table)[0] == (6 + 2 * 10) * 10**6
    priced = runs.priced(lower_table, 53 * 10**6)
    assert 52.9 * 10**6 <= priced.shortest(lower_table)[0] <= 53 * 10**6
