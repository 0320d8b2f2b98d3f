"""Links, widest paths, explicit times and host times."""

import pytest

from placegap.instances import Cluster, Device, Edge, Graph, Instance, Link, Op
from placegap.instances.problem.arrays import link_time_ns


def cluster(links: list[tuple[str, str, int, int]], hosts: str = "", names: str = "abc") -> Cluster:
    return Cluster(
        name="c",
        devices=tuple(Device(name=n, kind="gpu", is_host=n in hosts) for n in names),
        links=tuple(
            Link(source=s, target=t, bandwidth_bytes_per_s=width, latency_ns=latency)
            for s, t, width, latency in links
        ),
    )


def instance(on: Cluster, **edge: object) -> Instance:
    two = tuple(Op(name=name, time_ns={"gpu": 1}) for name in ("p", "q"))
    graph = Graph(name="g", ops=two, edges=(Edge(producer="p", consumer="q", **edge),))  # type: ignore[arg-type]
    return Instance(name="i", graph=graph, cluster=on)


def transfer(on: Instance, source: int, target: int) -> int:
    arrays = on.arrays
    return int(arrays.transfer_ns[0, arrays.link_class[source, target]])


def test_a_transfer_is_latency_plus_bytes_over_bandwidth_rounded_up() -> None:
    # 10 bytes at 3 GB/s are 3.33 ns
    assert link_time_ns(10, 3 * 10**9, 5) == 9


def test_ten_gigabytes_do_not_overflow() -> None:
    # 10**10 * 10**9 is above 2**63
    assert link_time_ns(10**10, 10**9, 0) == 10**10


def test_a_pair_without_a_link_takes_the_widest_path() -> None:
    # a -> c: over b the bottleneck is 5 GB/s; over d it is 4 GB/s though with less latency
    lines = [("a", "b", 9, 1), ("b", "c", 5, 2), ("a", "d", 4, 0), ("d", "c", 9, 0)]
    assert cluster(lines, names="abcd").widest_paths[0, 2] == (5, 3)


def test_explicit_matrices_replace_links() -> None:
    matrix = ((0, 7), (4, 0))
    on = instance(cluster([], names="ab"), transfer_ns=matrix)
    assert (transfer(on, 0, 1), transfer(on, 1, 0)) == (7, 4)


@pytest.mark.parametrize(("hosts", "expected"), [("", 20), ("a", 10), ("b", 10), ("ab", 0)])
def test_host_times_alone_give_makespan_transfers(hosts: str, expected: int) -> None:
    # design: between accelerators 2 host_time, with one host 1, between hosts 0
    on = instance(cluster([], hosts=hosts, names="ab"), host_time_ns=10)
    assert transfer(on, 0, 1) == expected


def test_host_time_is_the_least_transfer_over_both_directions() -> None:
    # 10 bytes; a <-> b at 1 and 2 GB/s, b <-> c at 5 GB/s: a 5 ns (b -> a), b 2 ns, c 2 ns
    lines = [
        ("a", "b", 10**9, 0),
        ("b", "a", 2 * 10**9, 0),
        ("b", "c", 5 * 10**9, 0),
        ("c", "b", 5 * 10**9, 0),
    ]
    assert instance(cluster(lines), bytes=10).arrays.host_ns.tolist() == [[5, 2, 2]]
