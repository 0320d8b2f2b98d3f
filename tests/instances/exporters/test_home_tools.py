"""Lines for llama.cpp, exllama and ollama, and what they cannot say."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest

from placegap.experiments.running.exporting import check_formats
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    InputError,
    Instance,
    Link,
    Makespan,
    Op,
    Plan,
)
from placegap.instances.exporters.table import export_plan
from placegap.instances.problem.modules import with_granularity

GIB = 2**30


def model(*, gpus: int = 1, experts: bool = False) -> Instance:
    """An embedding, four layers and a head of 1 GiB each; with experts, of 2 GiB, half of them
    experts. A GPU takes 1 us for an op, and the host 3.
    """
    parts = ["attn", "mlp.experts"] if experts else ["attn"]
    names = ["embed", *(f"layers.{n}.{part}" for n in range(4) for part in parts), "head"]
    time_ns = {"gpu": 1000, "cpu": 3000}
    ops = tuple(Op(name=x, module=x, time_ns=time_ns, resident_bytes=GIB) for x in names)
    cards = (Device(name=f"g{k}", kind="gpu", memory_bytes=6 * GIB) for k in range(gpus))
    devices = (*cards, Device(name="host", kind="cpu", memory_bytes=64 * GIB, is_host=True))
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=10**9)
        for a, b in permutations(devices, 2)
    )
    edges = tuple(Edge(producer=a, consumer=b) for a, b in pairwise(names))
    cluster = Cluster(name="home", devices=devices, links=links)
    return Instance(name="m", graph=Graph(name="m", ops=ops, edges=edges), cluster=cluster)


def line(kind: str, instance: Instance, *home: int) -> str:
    return export_plan(kind, instance, Plan.on(list(home)), Makespan())


def test_llama_cpp_counts_the_last_layers_and_the_output() -> None:
    assert line("llamacpp", model(), 1, 1, 1, 0, 0, 0) == "-ngl 3\n"
    assert line("llamacpp", model(), 1, 1, 1, 0, 0, 1) == "-ngl 2\n"
    assert line("ollama", model(), 1, 1, 1, 0, 0, 0) == "PARAMETER num_gpu 3\n"
    # of 5 on GPUs, the output included, one is on the first
    assert line("llamacpp", model(gpus=2), 2, 0, 1, 1, 1, 1) == "-ngl 5 -ts 1,4\n"


def test_llama_cpp_leaves_experts_on_the_host_by_number_or_by_pattern() -> None:
    moe = model(experts=True)
    assert line("llamacpp", moe, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0) == "-ngl 5 --n-cpu-moe 2\n"
    said = line("llamacpp", moe, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0)
    assert said == '-ngl 5 -ot "blk\\.(1|3)\\.ffn_.*_exps\\.=CPU"\n'


def test_exllama_takes_what_each_gpu_holds() -> None:
    # embedding and one layer; three layers and the head
    assert line("exllama", model(gpus=2), 0, 0, 1, 1, 1, 1) == "-gs 2.01,4.01\n"
    with pytest.raises(InputError, match="GPUs alone"):
        line("exllama", model(), 1, 1, 0, 0, 0, 0)


def test_another_order_is_refused_with_the_nearest_plan_and_its_price() -> None:
    # layers 0 and 3 on the GPU: the tools have layers 2 and 3 there, in as many ns
    with pytest.raises(InputError, match=r"nearest is -ngl 2, which takes \+0.0 %"):
        line("llamacpp", model(), 1, 0, 1, 1, 0, 1)


def test_the_nearest_plan_has_more_layers_on_the_host_where_else_it_would_not_fit() -> None:
    net = model()
    ops = list(net.graph.ops)
    ops[3] = ops[3].model_copy(update={"resident_bytes": 6 * GIB})
    net = net.with_graph(net.graph.model_copy(update={"ops": tuple(ops)}), "model")
    # layers 0 and 3 on the GPU; 2 and 3 are 7 GiB, so that 3 alone is nearest: one op more on the
    # host, (1 + 5 * 3) / (2 + 4 * 3), and transfers take no time
    with pytest.raises(InputError, match=r"nearest is -ngl 1, which takes \+14.3 %"):
        line("llamacpp", net, 1, 0, 1, 1, 0, 1)


def test_layers_may_be_divided_for_llama_cpp_alone_and_only_by_their_experts() -> None:
    moe = with_granularity(model(experts=True), "experts")
    check_formats(["llamacpp"], moe, Makespan())
    for divided in (moe, model(experts=True)):
        with pytest.raises(InputError, match="may divide layer"):
            check_formats(["ollama"], divided, Makespan())
