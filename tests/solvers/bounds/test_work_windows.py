"""Work between heads and tails, intervals as arcs, memory along a chain: worked examples."""

import pytest
from draws import draw

from placegap.instances import Edge, Instance, Op
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
    windows = work_windows(fork_join(width, transfer_ns))
    assert window_bound(windows) == least_ns


def test_what_does_not_fit_must_move_and_pays() -> None:
    # Two of the three ops fit on one device. If one moves there and back, 1 + 50 + 10 + 50 + 1 ns;
    # if fork and join are apart, each device is idle for 50 ns: 1 + (30 + 50 + 50) / 2 + 1.
    instance = fork_join(3, 50, memory_bytes=2)
    windows = work_windows(instance)
    assert window_bound(windows) == 32
    assert memory_bound(instance, windows) == 67


def test_times_too_large_for_integers_prove_nothing_here() -> None:
    assert work_windows(fork_join(2, 2**57)) is None
