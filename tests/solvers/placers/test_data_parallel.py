"""data-parallel under makespan: copies of the graph, and the all-reduce of their gradients."""

from draws import draw

from placegap.instances import Cluster, Edge, Graph, Instance, Makespan, Op, evaluate, example
from placegap.instances.corpus.generate import mirror_training
from placegap.instances.oracle.recheck import recheck
from placegap.solvers import Result, run_method

FREE = Makespan(channels="free")
PORT = Makespan(channels="port")


def step(devices: int, bandwidth: int, memory: int | None = None, batch: int = 8) -> Instance:
    """Two layers of 80 ns and 120 bytes of parameters on equal devices, all pairs linked."""
    ops = tuple(
        Op(
            name=name,
            kind="Conv",
            time_ns={"gpu": 80},
            resident_bytes=120,
            parameter_bytes=120,
            axis_sizes={"batch": batch},
        )
        for name in ("one", "two")
    )
    edges = ({"producer": "one", "consumer": "two"},)
    graph = mirror_training(Graph.model_validate({"name": "net", "ops": ops, "edges": edges}))
    owners = draw.devices(["gpu"] * devices, lambda k: memory)
    links = draw.links(devices, lambda a, b: (bandwidth * 10**9, 0))
    cluster = Cluster(name="c", devices=tuple(owners), links=tuple(links))
    return Instance(name="net@c", graph=graph, cluster=cluster)


def placed(instance: Instance, semantics: Makespan, **params: int) -> Result:
    result = run_method(instance, semantics, "data-parallel", params)
    if result.plan is not None and result.split is not None:
        assert evaluate(result.split.fine, result.plan, semantics).feasible
        assert recheck(result.split.fine, result.plan, semantics).value_ns == result.value_ns
    return result


def test_a_step_takes_its_share_of_time_and_the_last_all_reduce() -> None:
    # one device: forward 2 x 80, backward 2 x 160, updates 2 x 8: 496
    assert run_method(step(1, 1), FREE, "single-device").value_ns == 496
    # four copies: forward 2 x 20, backward 2 x 40, to 120. Layer two's gradient travels while layer
    # one's backward op runs, its update runs to 128; layer one's, 2 / 4 of 120 bytes to each other
    # device at 10 bytes/ns, is there at 126: update 8 from 128 on
    result = placed(step(4, 10), FREE)
    assert result.value_ns == 120 + 8 + 8
    assert result.instance == "net-4-copies@c"
    assert result.message == (
        "the plan of another instance, net-4-copies@c: 4 copies of the graph, each with its share"
        " of a batch of 8"
    )
    # a port sends one transfer after the other: 2 (r - 1) / r of 120 bytes, 180 of them at
    # 10 bytes/ns, take 18. Layer two's are through at 98, layer one's at 120 + 18; its update 8
    assert placed(step(4, 10), PORT).value_ns == 120 + 18 + 8
    # each copy is on a device of its own
    for op, (device,) in zip(result.split.fine.graph.ops, result.plan.placement, strict=True):
        assert op.name.endswith(f"/{device + 1}of4")


def test_there_are_no_more_copies_than_samples() -> None:
    result = placed(step(4, 10, batch=3), FREE)
    assert result.details == {"copies": 3, "batch": 3}
    assert placed(step(4, 10, batch=3), FREE, batch=2).details["copies"] == 2
    alone = placed(step(4, 10), FREE, batch=1)
    assert (alone.split, alone.value_ns) == (None, 496)


def test_a_graph_that_fits_no_device_has_no_plan() -> None:
    # 2 x 120 bytes of parameters and twice that of optimizer state: 720 in each copy
    assert placed(step(4, 10, memory=720), FREE).value_ns is not None
    result = placed(step(4, 10, memory=719), FREE)
    assert result.plan is None
    assert "memory" in result.message


def test_the_batch_may_be_stated() -> None:
    # figure 3 on two devices, which differ in nothing: halves of 5, 20, 10 and 8, rounded up
    assert placed(example(), FREE, batch=8).value_ns == 3 + 10 + 5 + 4


def test_far_clones_send_to_the_host_over_the_cards_beside_it() -> None:
    # Two cards beside the host and two in another server, whose links take 50 ns for the byte of
    # each tensor. At 102 ns all gradients are ready: sent as they are, 1 + 1 + 50 + 50 ns into the
    # host, and 10 for the sum. With the far ones made beside the host: 100 + 50 + 2, then 1 + 1
    # and 10.
    ops = [Op(name="sum", time_ns={"cpu": 10})]
    edges = list[Edge]()
    for j in range(4):
        ops += [
            Op(name=f"clone_{j}/{name}", time_ns={"gpu": ns})
            for name, ns in (("layer", 100), ("grad", 2))
        ]
        edges.append(Edge(producer=f"clone_{j}/layer", consumer=f"clone_{j}/grad", bytes=1))
        edges.append(Edge(producer=f"clone_{j}/grad", consumer="sum", bytes=1))
    links = draw.links(5, lambda a, b: (10**9, 0 if (a in (2, 3)) == (b in (2, 3)) else 49))
    instance = draw.instance_of("far", ops, edges, draw.devices(["gpu"] * 4 + ["cpu"]), links)
    found = run_method(instance, PORT, "data-parallel")
    assert found.value_ns == 164
    assert tuple(found.plan.devices) == (4, 0, 0, 1, 1, 2, 0, 3, 1)
