"""Work between heads and tails, intervals as arcs, memory along a chain: worked examples."""

import random

import pytest
from draws import draw
from references.brute_force import MAKESPAN_SEMANTICS, oracle

from placegap.instances import Edge, Instance, Makespan, Op
from placegap.instances.problem import Channels
from placegap.solvers.bounds.labels.memory_runs import memory_bound
from placegap.solvers.bounds.work_windows import window_bound, work_windows


def fork_join(width: int, transfer_ns: int, memory_bytes: int | None = None) -> Instance:
    """A fork, ops of 10 ns and 1 byte side by side, a join, on two equal devices."""
    ops = [Op(name="fork", time_ns={"gpu": 1}), Op(name="join", time_ns={"gpu": 1})]
    ops[1:1] = [Op(name=f"op{i}", time_ns={"gpu": 10}, resident_bytes=1) for i in range(width)]
    rows = ((0, transfer_ns), (transfer_ns, 0))
    edges = [
        Edge(producer=a, consumer=b, transfer_ns=rows)
        for i in range(width)
        for a, b in (("fork", f"op{i}"), (f"op{i}", "join"))
    ]
    devices = draw.devices(["gpu"] * 2, lambda k: memory_bytes)
    return draw.instance_of("fork-join", ops, edges, devices, draw.fast_links(devices))


@pytest.mark.parametrize(
    ("width", "transfer_ns", "least_ns"),
    [
        (10, 0, 52),  # 1 + 10 * 10 / 2 + 1
        (10, 5, 57),  # the other device is idle for 5 ns at either end: 1 + (100 + 10) / 2 + 1
        (3, 50, 32),  # to move an op takes 110 ns: all stay, 1 + 30 + 1
    ],
)
def test_work_runs_between_a_fork_and_a_join(width: int, transfer_ns: int, least_ns: int) -> None:
    windows = work_windows(fork_join(width, transfer_ns), Makespan())
    assert window_bound(windows) == least_ns


def test_what_does_not_fit_must_move_and_pays() -> None:
    # Two of the three ops fit on one device. If one moves there and back, 1 + 50 + 10 + 50 + 1 ns;
    # if fork and join are apart, each device is idle for 50 ns: 1 + (30 + 50 + 50) / 2 + 1.
    instance = fork_join(3, 50, memory_bytes=2)
    windows = work_windows(instance, Makespan())
    assert window_bound(windows) == 32
    assert memory_bound(instance, windows) == 67


def test_times_too_large_for_integers_prove_nothing_here() -> None:
    assert work_windows(fork_join(2, 2**57), Makespan()) is None


def clones(number: int, semantics: Makespan) -> int:
    """What is proven of ops on equal cards whose results a host adds up, and then sends to a card.

    Each op takes 4 ns, each transfer 5 ns, the sum 3 ns and the op that reads it 2 ns.
    """
    ops = [Op(name=f"clone{i}", time_ns={"gpu": 4}) for i in range(number)]
    ops += [Op(name="sum", time_ns={"cpu": 3}), Op(name="last", time_ns={"gpu": 2})]
    edges = [Edge(producer=op.name, consumer="sum", bytes=5) for op in ops[:number]]
    edges.append(Edge(producer="sum", consumer="last", bytes=5))
    devices = draw.devices(["gpu", "gpu", "cpu"])
    instance = draw.instance_of("clones", ops, edges, devices, draw.fast_links(devices))
    windows = work_windows(instance, semantics)
    least_ns = window_bound(windows)
    assert least_ns <= oracle(instance, semantics)
    return least_ns


@pytest.mark.parametrize(
    ("channels", "least_ns"),
    [
        # the first op ends at 4, then four transfers into the host; 3, 5 and 2 ns follow
        ("port", 4 + 4 * 5 + 10),
        ("half_duplex", 4 + 4 * 5 + 10),
        # the work of the four on two cards, one transfer
        ("link", 8 + 5 + 10),
        ("free", 8 + 5 + 10),
    ],
)
def test_what_must_enter_the_host_follows_each_other(channels: Channels, least_ns: int) -> None:
    assert clones(4, Makespan(channels=channels)) == least_ns


def hosted_instance(seed: int) -> Instance:
    """5 to 7 ops on two cards and a host: most run on one kind alone."""
    rng, count = random.Random(f"hosted-{seed}"), 5 + seed % 3
    kinds = ["gpu", rng.choice(["gpu", "gpu", "gpu1"]), "cpu"]
    cards = sorted(set(kinds[:2]))

    def times() -> dict[str, int]:
        pool = rng.choice([cards, cards, cards, ["cpu"], ["cpu"], kinds])
        return draw.times(rng, pool, lambda: rng.randrange(8), chance=0.85)

    ops = draw.ops(count, times, lambda: rng.randrange(3))
    chance = rng.choice([0.3, 0.5, 0.7])
    pairs = draw.some(rng, draw.pairs(rng, range(count), count, chance), rng.choice([5, 6]))
    size, shares = [rng.randrange(10) for _ in ops], [rng.random() < 0.6 for _ in ops]
    edges = draw.edges(pairs, size, shares, lambda: rng.randrange(10))
    links = draw.links(3, lambda a, b: (rng.choice([10**9, 5 * 10**8]), rng.choice([0, 0, 1])))
    if rng.random() < 0.2:
        ops = draw.together(ops, rng.sample(range(count), 2), kinds, "pair")
    limit = rng.choice([None, None, 4, 6])
    devices = draw.devices(kinds, lambda k: limit)
    return draw.instance_of(f"hosted-{seed}", ops, edges, devices, links)


def compare(seeds: range) -> int:
    """How often queues prove more than is proven without channels; never more than the optimum."""
    more = 0
    for seed in seeds:
        # every other one as the papers have it
        chosen = MAKESPAN_SEMANTICS[seed // 2 % len(MAKESPAN_SEMANTICS)]
        semantics = Makespan(channels="port", transfers="per_tensor") if seed % 2 else chosen
        instance = hosted_instance(seed)
        best = oracle(instance, semantics)
        if best is not None:
            least = window_bound(work_windows(instance, semantics))
            assert least <= best, (instance.name, semantics.label)
            free = semantics.model_copy(update={"channels": "free"})
            more += least > window_bound(work_windows(instance, free))
    return more


def test_no_queue_proves_more_than_an_optimum() -> None:
    assert compare(range(200)) >= 10


@pytest.mark.deep
def test_no_queue_proves_more_than_optima_of_thousands() -> None:
    assert compare(range(1000, 21_000)) >= 1_000
