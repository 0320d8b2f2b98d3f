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


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize(
    ("transfer_ns", "colocated", "least_ns"),
    [
        (0, 0, 8),  # work: 2 + 3 * 4 / 2
        (5, 0, 11),  # two stay: one moves, 2 + 5 + 4
        (20, 0, 14),  # all three stay
        (0, 3, 14),
        # two may not leave, and the third one moves: 2 + 2 * 4
        (3, 2, 10),
    ],
)
def test_neighbours_on_one_device_run_in_turn(
    transfer_ns: int, colocated: int, least_ns: int, backward: bool
) -> None:
    # an op of 2 ns feeds three of 4 ns, or reads from them, on two equal devices
    ops = [Op(name="hub", time_ns={"gpu": 2}, colocation="hub" if colocated else None)]
    ops += [
        Op(name=f"op{i}", time_ns={"gpu": 4}, colocation="hub" if i < colocated else None)
        for i in range(3)
    ]
    rows = ((0, transfer_ns), (transfer_ns, 0))
    ends = [(f"op{i}", "hub") if backward else ("hub", f"op{i}") for i in range(3)]
    edges = [Edge(producer=u, consumer=v, transfer_ns=rows) for u, v in ends]
    devices = draw.devices(["gpu"] * 2)
    instance = draw.instance_of("hub", ops, edges, devices, draw.fast_links(devices))
    assert window_bound(work_windows(instance, Makespan())) == least_ns
    if transfer_ns:  # else one device must do two of the three
        assert oracle(instance, Makespan()) == least_ns


def hub_instance(seed: int) -> Instance:
    """4 to 7 ops on two devices, or up to 6 on three, most beside one that feeds or reads them."""
    rng = random.Random(f"hub-{seed}")
    kinds = [f"gpu{rng.choice([0, 0, k])}" for k in range(rng.choice([2, 2, 3]))]
    count, pool = rng.randrange(4, 10 - len(kinds)), sorted(set(kinds))
    chance = rng.choice([0.7, 0.9, 1])
    ops = draw.ops(count, lambda: draw.times(rng, pool, lambda: rng.randrange(10), chance=chance))
    hub = rng.randrange(count)
    beside = [(min(hub, u), max(hub, u)) for u in range(count) if u != hub and rng.random() < 0.75]
    pairs = sorted({*beside, *draw.some(rng, draw.pairs(rng, range(count), count, 0.2), 2)})
    size = [rng.choice([0, 1, 3, 8, 20]) for _ in ops]
    edges = draw.edges(pairs, size, [rng.random() < 0.5 for _ in ops], lambda: rng.randrange(20))
    edges += [
        Edge(producer=f"op{u}", consumer=f"op{v}", tensor="more", bytes=size[u])
        for u, v in pairs
        if rng.random() < 0.15
    ]
    if rng.random() < 0.7:
        ops = draw.together(ops, rng.sample(range(count), rng.choice([2, 3])), kinds, "group")
    links = draw.links(len(kinds), lambda a, b: (10**9, rng.choice([0, 0, 1, 2])))
    # brute force orders ten transfers at most
    return draw.instance_of(f"hub-{seed}", ops, edges[:10], draw.devices(kinds), links)


def is_exact(seed: int) -> bool | None:
    """Whether a bound is the optimum, which it is never above; None without a plan."""
    instance, semantics = hub_instance(seed), MAKESPAN_SEMANTICS[seed % len(MAKESPAN_SEMANTICS)]
    best = oracle(instance, semantics)
    if best is None:
        return None
    least_ns = window_bound(work_windows(instance, semantics))
    assert least_ns <= best, (instance.name, semantics.label)
    return least_ns == best


def test_no_turn_proves_more_than_an_optimum() -> None:
    # 195 of these are exact, and 91 without turns
    assert [is_exact(seed) for seed in range(300)].count(True) >= 150


@pytest.mark.deep
def test_no_turn_proves_more_than_optima_of_thousands() -> None:
    assert [is_exact(seed) for seed in range(1000, 11_000)].count(True) >= 5_000


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
