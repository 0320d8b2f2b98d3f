"""Which ops run as one kernel, and what such a kernel takes."""

from itertools import pairwise
from itertools import product as product_of
from pathlib import Path

import pytest
from doubles.configs import config, fields

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    Makespan,
    Op,
    Plan,
    evaluate,
    load_cluster,
)
from placegap.instances.costing.catalogue import catalogue
from placegap.instances.costing.costing import costed, kernel_ns, with_costs
from placegap.instances.costing.launches import launch_of
from placegap.instances.files.document import Document
from placegap.instances.problem import Cache
from placegap.instances.problem.modules import layer_of
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import TraceOptions

T4 = Cluster(name="c", devices=(Device(name="d", kind="T4"),))


def graph(*ops: Op, wires: str) -> Graph:
    """Ops, and edges of 100 bytes as ``a>b b>c``."""
    ends = [wire.split(">") for wire in wires.split()]
    edges = tuple(Edge(producer=a, consumer=b, bytes=100, tensor=a) for a, b in ends)
    return Graph(name="g", ops=ops, edges=edges)


def light(name: str, module: str | None = None, **more: object) -> Op:
    """An op that reads 100 bytes and writes 100."""
    return Op(name=name, module=module, flops=0, bytes_moved=200, **more)  # type: ignore[arg-type]


def product(name: str, module: str | None = None, weight: int = 1000) -> Op:
    size = {"bytes_moved": 200 + weight, "parameter_bytes": weight}
    return Op(name=name, module=module, flops=2000, **size)


@pytest.mark.parametrize("costs", ["calibrated", "roofline"])
def test_a_kind_runs_no_kernel_with_an_op_that_it_lacks(costs: str, tmp_path: Path) -> None:
    path = tmp_path / "kinds.yaml"
    rates = "peak_flops_per_s: 1e12, bandwidth_bytes_per_s: 1e11, memory_bytes: 9e9"
    path.write_text(f"npu: {{{rates}, lacks: [topk, gather]}}\n")
    cluster = load_cluster("npu+T4, pcie3", path)
    ops = [product("a", "x"), light("b", "y", kind="topk"), light("c", "y"), product("d", "z")]
    found = costed(with_costs(graph(*ops, wires="a>b b>c c>d"), costs), cluster)
    # b and c are one kernel, unless each op is launched by itself
    lacking = {"b", "c"} if costs == "calibrated" else {"b"}
    assert {op.name for op in found.ops if "npu" not in op.time_ns} == lacking
    assert all("T4" in op.time_ns for op in found.ops)


def kernels(of: Graph) -> list[str]:
    """The names of the ops of each kernel, in order."""
    found: dict[int, list[str]] = {}
    for op, number in zip(of.ops, launch_of(of).tolist(), strict=True):
        found.setdefault(number, []).append(op.name)
    return [" ".join(names) for names in found.values()]


ONNX = [("conv", "Conv", 10**6, 100), ("relu", "Relu", 25, 0), ("add", "Add", 25, 0)]


def op_of(name: str, kind: str, flops: int, weight: int) -> Op:
    return Op(name=name, kind=kind, flops=flops, bytes_moved=200 + weight, parameter_bytes=weight)


# before -> mm -> after, and before -> after: as one kernel they would wait for themselves
AROUND = [light("before", "m"), product("mm", "m.mm"), light("after", "m")]
# the norm's module has weights, so that it is not fused with what the layer around it does
NORM = [light("add", "h.0"), *(light(x, "h.0.norm") for x in ("square", "mean", "scale"))]
NORM.append(light("weigh", "h.0.norm", parameter_bytes=50))
GATED = [product("gate", "mlp.gate"), light("silu", "mlp.act"), product("up", "mlp.up")]
GATED += [light("mul", "mlp"), product("down", "mlp.down")]
ATTENTION = [product("q", "attn.q"), light("rotate", "attn"), product("scores", "attn", weight=0)]
ATTENTION += [light("mask", "attn"), light("softmax", "attn", kind="_softmax")]
ATTENTION += [product("values", "attn", weight=0), product("out", "attn.out")]
# decay reads the state and waits for key, which is no part of the step, nor is the gate
STEP = [light("gate", "m"), light("decay", "m", state_bytes=100), product("mm", "m.mm")]
STEP += [light(name, "m") for name in ("key", "add", "read")] + [light("copy", "m", kind="copy")]


@pytest.mark.parametrize(
    ("ops", "wires", "expected"),
    [
        (AROUND, "before>mm mm>after before>after", "before|mm|after"),
        (NORM, "add>square square>mean mean>scale scale>weigh", "add|square mean scale weigh"),
        (GATED, "gate>silu silu>mul up>mul mul>down", "gate|silu mul|up|down"),
        (
            ATTENTION,
            "q>rotate rotate>scores scores>mask mask>softmax softmax>values values>out",
            "q|rotate|scores mask softmax values|out",
        ),
        (
            STEP,
            "gate>decay decay>add mm>key key>add add>read add>copy",
            "gate|decay add read|mm|key|copy",
        ),
        # an ONNX op with FLOP may be no product
        ([op_of(*x) for x in ONNX], "conv>relu relu>add", "conv|relu add"),
        # layers, and what belongs to none
        (
            [light("last", "h.0"), light("root"), light("first", "h.1")],
            "last>root root>first last>first",
            "last|root|first",
        ),
    ],
    ids=["around a product", "norm", "gated", "attention", "recurrence", "onnx", "layers"],
)
def test_what_one_kernel_does(ops: list[Op], wires: str, expected: str) -> None:
    assert kernels(graph(*ops, wires=wires)) == expected.split("|")


def test_a_copy_over_a_state_is_a_kernel_of_its_own_before_the_end_of_its_layer() -> None:
    wires = "gate>decay decay>add mm>key key>add add>read add>copy read>out out>end"
    of = graph(*STEP, product("out", "m.out"), light("end", "m"), wires=wires)
    ends = Edge(producer="copy", consumer="end", bytes=0)  # no tensor: copy is done before end is
    assert kernels(of.model_copy(update={"edges": (*of.edges, ends)})) == kernels(of)
    assert "copy" in kernels(of)


@pytest.mark.parametrize(
    "other",
    [
        light("b", "m", colocation="mine"),
        light("b", "m", backward=True),
        light("b", "m.experts"),
        light("b", "m", time_ns={"T4": 7}),
    ],
    ids=["group", "backward", "experts", "timed"],
)
def test_ops_that_belong_elsewhere_are_kernels_of_their_own(other: Op) -> None:
    ops = light("a", "m"), other, light("c", "m")
    assert kernels(graph(*ops, wires="a>b b>c")) == ["a", "b", "c"]


def test_a_kernel_is_launched_once_and_moves_what_goes_in_and_out() -> None:
    # Three ops move 600 bytes: the two tensors between them are written and read, 4 x 100, which
    # a kernel does not do. It moves 200 bytes, in 0.8 ns at 0.8 of 320 GB/s, and a launch 5 us.
    ops = [light(name, "m") for name in "abc"]
    found = costed(graph(*ops, wires="a>b b>c"), T4)
    assert sum(op.time_ns["T4"] for op in found.ops) == kernel_ns(0, 200, catalogue()["T4"]) == 5001
    assert [op.time_ns["T4"] for op in found.ops] == [1667, 1667, 1667]  # in thirds of 5001
    assert len({op.colocation for op in found.ops}) == 1
    grouped = [light(name, "m", colocation="mine") for name in "ab"]
    of = costed(graph(*grouped, wires="a>b"), T4)
    assert [op.colocation for op in of.ops] == ["mine", "mine"]
    # a -> b inside, and a -> mm outside: only the reading by b is saved, 400 - 100 bytes
    read = graph(light("a", "m"), light("b", "m"), product("mm", "m.mm"), wires="a>b a>mm")
    times = [op.time_ns["T4"] for op in costed(read, T4).ops]
    assert sum(times[:2]) == kernel_ns(0, 300, catalogue()["T4"])
    view = Op(name="a", flops=0, bytes_moved=0)  # takes no time
    assert costed(graph(view, wires=""), T4).ops[0].time_ns == {"T4": 0}


def test_a_kernel_takes_what_was_fitted_to_cards_of_its_vendor() -> None:
    # 936,000 bytes at 0.85 of 936 GB/s, 400,000 at 0.8 of 400 and 960,000 at 0.8 of 960
    taken_ns = {
        "RTX3090": (936_000, 3_000 + 1_177),
        "M1-Max": (400_000, 10_000 + 1_250),
        "RX7900XTX": (960_000, 8_000 + 1_250),
    }
    for kind, (moved, time_ns) in taken_ns.items():
        assert kernel_ns(0, moved, catalogue()[kind]) == time_ns
    # a launch that is stated stays, and a kind may name other constants, which must exist
    stated = catalogue()["RTX3090"].model_copy(update={"launch_overhead_ns": 7_000})
    assert kernel_ns(0, 936_000, stated) == 7_000 + 1_177
    unknown = stated.model_copy(update={"costed_as": "nvidia"})
    with pytest.raises(InputError, match="no constants 'nvidia'; did you mean 'NVIDIA'"):
        kernel_ns(0, 936_000, unknown)


def test_a_host_wakes_its_threads_for_each_kernel() -> None:
    # 1 us for an op of a host, and for its threads 7 us on a desktop, 30 us on a server; bytes at
    # 60 % of 51.2 GB/s, 30.72 a ns, and at 70 % of 204.8, 143.36 a ns
    assert kernel_ns(0, 3072, catalogue()["DDR4-2ch"]) == 100 + 1_000 + 7_000
    assert kernel_ns(0, 14336, catalogue()["DDR4-8ch"]) == 100 + 1_000 + 30_000


def row_of_layers(count: int) -> Graph:
    """Layers of a decode step: ten sums, a product that reads 20 MB, nine sums."""
    names = [(f"{layer}.{k}", f"h.{layer}") for layer in range(count) for k in range(20)]
    ops = [light(*name) for name in names]
    for at in range(10, len(ops), 20):
        name, module = names[at]
        ops[at] = Op(name=name, module=module, flops=4 * 10**7, bytes_moved=2 * 10**7)
    return graph(*ops, wires=" ".join(f"{a.name}>{b.name}" for a, b in pairwise(ops)))


def taken(instance: Instance, layers: tuple[int, ...]) -> int:
    """What it takes with layer k on the device of number layers[k]."""
    plan = Plan.on([layers[int(op.name.partition(".")[0])] for op in instance.graph.ops])
    value = evaluate(instance, plan, Makespan(memory="peak")).value_ns
    assert value is not None
    return value


def test_no_layer_that_fits_a_card_belongs_on_the_host() -> None:
    # Op by op a card would launch 20 times 5 us a layer, and a host 20 times 1 us, so that the
    # slower host won. A layer is three kernels: 3 x 3 us and 20 MB at 857 GB/s, 32 us, on the
    # card, 3 x 31 us and 62 us at 323 GB/s on the host.
    of, cluster = row_of_layers(3), load_cluster("RTX4090+DDR5-12ch, pcie4")
    calibrated = Document(name="g", graph=of).instance(cluster)
    card, host = taken(calibrated, (0, 0, 0)), taken(calibrated, (1, 1, 1))
    assert abs(card - 3 * 32_340) < 1_000
    assert abs(host - 3 * 155_000) < 1_000
    assert card == min(taken(calibrated, layers) for layers in product_of((0, 1), repeat=3))
    eager = Document(name="g", graph=with_costs(of, "roofline")).instance(cluster)
    assert taken(eager, (1, 1, 1)) < taken(eager, (0, 0, 0))


def test_what_was_done_is_noted() -> None:
    of = costed(graph(light("a", "m"), light("b", "m"), wires="a>b"), T4)
    assert of.provenance.changes == ("times on T4 are calibrated estimates (kernels: 1)",)
    host = Cluster(name="c", devices=(Device(name="h", kind="DDR4-2ch"),))
    known = {**of.provenance.parameters, **costed(of, host).provenance.parameters}
    assert known["costs"] == "calibrated"
    assert (known["costing.T4.compute_percent"], known["costing.T4.bandwidth_percent"]) == (79, 80)
    assert known["costing.DDR4-2ch.bandwidth_percent"] == 60
    assert (known["costing.T4.kernel_ns"], known["costing.DDR4-2ch.kernel_ns"]) == (5_000, 8_000)


SMALL = fields("head_dim=16 max_position_embeddings=128")
LINEAR = {
    **fields("num_experts=8 num_experts_per_tok=2 moe_intermediate_size=32"),
    **fields("linear_key_head_dim=8 linear_value_head_dim=8 linear_num_key_heads=2"),
    **fields("linear_num_value_heads=4 shared_expert_intermediate_size=32"),
    "layer_types": [*["linear_attention"] * 3, "full_attention"],
}


@pytest.mark.torch
def test_a_decode_layer_has_about_as_many_kernels_as_a_tool_launches(tmp_path: Path) -> None:
    # Nodes that llama.cpp's CUDA back end launches for one token, of src/models, llama-graph.cpp
    # and delta-net-base.cpp; a norm with its weight, a router's softmax with top-k (its pull
    # request 16130) and the sum over experts (15631) are one each. qwen3next: norm, qkv, z, beta
    # and alpha; copy and sigmoid of beta; copy of alpha, bias, softplus with its product; the
    # convolution's state: read, joined, written; convolution with silu; two norms of heads, two
    # repeats; the recurrence's state read, its step, state written; norm, silu with its product,
    # out, add, norm; router, top-k, gate, up, swiglu, down, weights, sum; gate, up, swiglu, down
    # of the shared expert; its own gate, sigmoid, product; two adds
    tools = 42
    from placegap.instances.torch_models.model import read_traced_model

    name = config(tmp_path, "qwen3_next", "64 4 4 2 128 256", **SMALL, **LINEAR)
    options = TraceOptions(dtype="float16", decode=True, kv_tokens=64)
    of = read_traced_model(name, options).graph
    rows = zip(launch_of(of).tolist(), layer_of(of), of.ops, strict=True)
    mine = {number for number, own, op in rows if own == "model.layers.2" and op.bytes_moved}
    assert 0.75 * tools <= len(mine) <= 1.25 * tools


def test_a_cache_in_blocks_counts_as_16_bits_at_55_percent_of_the_bandwidth() -> None:
    # 1,000 tokens of 8,500 bytes in q8_0, 8.5 bits: 16 MB in 16 bits. A T4 moves 320 GB/s, and a
    # kernel takes 5 us beside its bytes; other caches count their own bytes at 80 %.
    def time_ns(tokens: int, **more: object) -> int:
        cache, size = Cache(token_bytes=8_500, tokens=tokens), 8_500 * tokens
        op = Op(name="a", flops=1, bytes_moved=size, resident_bytes=size, caches=(cache,))
        noted = {"parameters": {"kv_dtype": "q8_0", "decode": True, **more}}
        of = Graph.model_validate({"name": "g", "ops": (op,), "provenance": noted})
        return costed(of, T4).ops[0].time_ns["T4"]

    assert time_ns(1000) == pytest.approx(5_000 + 16e6 / (0.55 * 320), rel=1e-4)
    others: list[dict[str, object]] = [{"kv_dtype": "fp8"}, {"decode": False}]
    for other in others:
        assert time_ns(1000, **other) == pytest.approx(5_000 + 8.5e6 / (0.8 * 320), rel=1e-4)
