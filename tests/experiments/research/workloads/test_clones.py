"""Clones of a training graph: what there is once, what each clone has, and what that costs."""

from pathlib import Path
from typing import Any

from draws import draw

from placegap.experiments.research.workloads.clones import with_clones
from placegap.experiments.research.workloads.variants import with_slower_ops
from placegap.experiments.running.sources import Source, load_source
from placegap.instances import Document, Edge, Instance, Makespan, Op, Plan, save_document
from placegap.instances.problem.modules import clones_of
from placegap.instances.referee.evaluate import evaluate
from placegap.solvers.solving.run_method import run_method


def op(name: str, kind: str, time_ns: int = 0, **rest: Any) -> Op:
    times = {"gpu": time_ns, "cpu": 2 * time_ns}
    return Op(name=name, kind=kind, time_ns=times, **rest)


def step(hosts: int = 0) -> Instance:
    """A variable w of 8 bytes, its layer and gradient, a clip behind the gradient, an update.

    Of its three devices the first ones are hosts.
    """
    ops = (
        op("w", "VariableV2", resident_bytes=8, parameter_bytes=8, colocation="w"),
        op("x", "Placeholder"),
        op("layer", "Conv2D", 100, resident_bytes=5),
        op("log", "Summary", 3),
        op("grad", "Conv2DBackpropFilter", 100, resident_bytes=8, backward=True),
        op("clip", "Mul", 1, backward=True),
        op("u", "ApplyAdam", 2, backward=True, colocation="w"),
    )
    sizes = {"w layer": 8, "layer grad": 5, "grad clip": 8, "clip u": 8}
    arcs = ("w layer", "x layer", "layer log", "layer grad", "grad clip", "clip u", "w u")
    edges = tuple(
        Edge(producer=a, consumer=b, bytes=sizes.get(f"{a} {b}", 0))
        for a, b in (arc.split() for arc in arcs)
    )
    kinds = ["cpu"] * hosts + ["gpu"] * (3 - hosts)
    devices = draw.devices(kinds, lambda k: 10**6, hosts=hosts)
    return draw.instance_of("step", ops, edges, devices, draw.links(3, lambda a, b: (10**9, 0)))


def test_variables_and_what_follows_a_gradient_are_there_once_and_a_summary_in_the_first() -> None:
    names = [op.name for op in with_clones(step(), 3).graph.ops]
    assert [name for name in names if not name.startswith("clone_")] == [
        "w",
        "clip",
        "u",
        "grad/AddN_4",
    ]
    for name, copies in (("x", 3), ("layer", 3), ("grad", 3), ("log", 1)):
        assert names.count(name) == 0
        assert sum(each.endswith(f"/{name}") for each in names) == copies


def test_every_clone_reads_the_variable_and_its_gradient_is_added_up() -> None:
    arcs = {(e.producer, e.consumer): e.bytes for e in with_clones(step(), 2).graph.edges}
    for j in (0, 1):
        assert arcs["w", f"clone_{j}/layer"] == 8
        assert arcs[f"clone_{j}/grad", "grad/AddN_4"] == 8
    assert arcs["grad/AddN_4", "clip"] == 8


def test_data_parallelism_takes_longer_on_more_devices() -> None:
    # one device takes 100 + 3 + 100 + 1 + 2 ns. With two, w crosses once before (8 ns) and the
    # gradient once after (8 ns); with three, w leaves its device twice in turn, and gradients come
    # in turn: the last clone starts after 16 ns and ends at 216, the one before at 208 sends until
    # 216, then the last until 224, and clip and update take 3 more
    values = []
    for clones in (1, 2, 3):
        instance = with_clones(step(), clones)
        plan = Plan.on([max(j, 0) for j in clones_of(instance)])
        values.append(evaluate(instance, plan, Makespan(channels="port")).value_ns)
    assert values == [206, 219, 227]


def test_data_parallel_puts_each_clone_on_a_device() -> None:
    instance = with_clones(step(), 3)
    plan = run_method(instance, Makespan(), method="data-parallel").plan
    assert plan is not None
    for at, j in zip(plan.placement, clones_of(instance), strict=True):
        assert j < 0 or at == (j,)
    shared = {at for at, j in zip(plan.placement, clones_of(instance), strict=True) if j < 0}
    assert len(shared) == 1  # one variable, with its clip, update and sum


def test_beside_a_host_what_there_is_once_runs_there_and_clones_on_the_gpus() -> None:
    for clones in (1, 2):
        for each in with_clones(step(hosts=1), clones).graph.ops:
            assert set(each.time_ns) == {"gpu" if each.name.startswith("clone_") else "cpu"}


def test_data_parallel_reads_variables_from_the_host_and_sends_gradients_there() -> None:
    # w leaves the host from 0 to 8 and from 8 to 16 ns. The first clone has layer until 108 and
    # grad until 208 (log, which nothing waits for, comes last), and the host has its gradient at
    # 216; the other one ends at 216 and is there at 224. Clip and update take 2 + 4 ns on the host
    result = run_method(with_clones(step(hosts=1), 2), Makespan(channels="port"), "data-parallel")
    assert result.value_ns == 230
    # alone, its gradient needs no sum: 216 + 2 + 4
    result = run_method(with_clones(step(hosts=1), 1), Makespan(channels="port"), "data-parallel")
    assert result.value_ns == 222


def test_ops_are_slower_on_gpus_and_not_on_hosts() -> None:
    (layer,) = (op for op in with_slower_ops(step(hosts=1), 1.5).graph.ops if op.name == "layer")
    assert layer.time_ns == {"gpu": 150, "cpu": 200}


def test_a_share_of_all_bytes_is_one_of_a_replicas_however_many_clones_there_are(
    tmp_path: Path,
) -> None:
    # w, layer and grad hold 8 + 5 + 8 bytes; two clones and the sum of gradients 8 + 2 * 13 + 8
    file = tmp_path / "step.json"
    save_document(Document.of(step()), file)
    instance = load_source(Source(str(file), clones=2, device_memory=1.0))
    assert sum(instance.arrays.resident_bytes.tolist()) == 42
    assert {device.memory_bytes for device in instance.cluster.devices} == {21}
