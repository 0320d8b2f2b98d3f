"""The exact algorithms on rows of ops whose optima docs/exact.md and docs/pipelines.md derive."""

from itertools import pairwise

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    LatencySubgraphs,
    Link,
    Makespan,
    MaxLoad,
    Op,
    PipelineIteration,
)
from placegap.solvers import run_method


def row(
    times: dict[str, tuple[int, ...]],
    edges: tuple[Edge, ...],
    devices: tuple[Device, ...],
    links: tuple[Link, ...] = (),
) -> Instance:
    """Ops a, b, c with times by kind of device."""
    ops = [
        Op(name=name, time_ns={kind: own[i] for kind, own in times.items()}, resident_bytes=1)
        for i, name in enumerate("abc")
    ]
    graph = Graph(name="row", ops=tuple(ops), edges=edges)
    return Instance(
        name="row", graph=graph, cluster=Cluster(name="c", devices=devices, links=links)
    )


def edges(field: str, *costs: int) -> tuple[Edge, ...]:
    """Edges a -> b and b -> c, and what each costs."""
    pairs = zip(("ab", "bc"), costs, strict=True)
    return tuple(
        Edge.model_validate({"producer": a, "consumer": b, field: c}) for (a, b), c in pairs
    )


ONE = edges("host_time_ns", 1, 1)
UNLIKE = (Device(name="x", kind="x"), Device(name="y", kind="y"))
ALIKE = (Device(name="x0", kind="x"), Device(name="x1", kind="x"))
LINKS = tuple(Link(source=a, target=b, bandwidth_bytes_per_s=10**9) for a, b in ("xy", "yx"))


def test_ideal_dp_refutes_8_and_finds_9() -> None:
    chain = row({"x": (4, 4, 4), "y": (8, 8, 8)}, ONE, UNLIKE)
    found = run_method(chain, MaxLoad(plans="chain"), "ideal-dp")
    assert (found.status, found.value_ns) == ("optimal", 9)


def test_prices_of_a_third_refute_8() -> None:
    found = run_method(row({"x": (4, 4, 4)}, ONE, ALIKE), MaxLoad(plans="any"), "noncontiguous")
    assert (found.value_ns, found.bound_ns) == (9, 9)


def test_the_shortest_path_over_cuts_stays_on_y() -> None:
    instance = row({"x": (2, 9, 3), "y": (4, 4, 3)}, edges("bytes", 3, 1), UNLIKE, LINKS)
    found = run_method(instance, Makespan(), "decomposition")
    assert (found.status, found.value_ns) == ("optimal", 11)


def test_the_row_of_calls_that_sends_less_is_best() -> None:
    small = tuple(device.model_copy(update={"memory_bytes": 2}) for device in ALIKE)
    instance = row({"x": (1, 1, 1)}, edges("host_time_ns", 9, 2), small)
    found = run_method(instance, LatencySubgraphs(subgraphs=1), "latency")
    assert (found.status, found.value_ns) == ("optimal", 7)


def test_two_stages_of_one_and_two_ns_take_three_microbatches_12_ns() -> None:
    # gpipe without transfers: sum f + (m - 1) max f + sum b + (m - 1) max b = 2 + 2 + 4 + 4
    forward = [Op(name=name, time_ns={"gpu": 1}, colocation=name) for name in "ab"]
    backward = [
        Op(name=f"{name}-back", time_ns={"gpu": 2}, colocation=name, backward=True) for name in "ba"
    ]
    ops = (*forward, *backward)
    joined = tuple(Edge(producer=a.name, consumer=b.name) for a, b in pairwise(ops))
    gpus = tuple(Device(name=f"gpu{k}", kind="gpu") for k in range(2))
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=10**9)
        for a, b in (gpus, gpus[::-1])
    )
    cluster = Cluster(name="two", devices=gpus, links=links)
    instance = Instance(name="row", graph=Graph(name="row", ops=ops, edges=joined), cluster=cluster)
    found = run_method(instance, PipelineIteration(schedule="gpipe", microbatches=3), "stage-cuts")
    assert (found.status, found.value_ns) == ("optimal", 12)
