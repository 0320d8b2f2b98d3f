"""What users are told where input is refused: each sentence of this room stands here, once."""

import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from doubles.bad_files import good_dnn, good_document, good_piper
from doubles.refusals import Refusals, each_refusal, is_refused
from draws import draw
from draws.hybrid import layer_row
from draws.lines import home_model
from draws.pipelines import layer_row as stage_row
from draws.pipelines import split_row

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    HybridPipeline,
    Instance,
    LatencySubgraphs,
    Link,
    Makespan,
    MaxLoad,
    Mode,
    Op,
    PipelineIteration,
    Plan,
    cost_graph,
    evaluate,
    example,
    load_cluster,
    load_corpus,
    load_model,
    load_plan,
    save_plan,
)
from placegap.instances.corpus.corpus import load_best_known
from placegap.instances.corpus.generate import generate, mirror_training
from placegap.instances.corpus.layer_chains import chain_with_modes
from placegap.instances.costing.catalogue import catalogue, load_catalogue
from placegap.instances.costing.costing import with_costs
from placegap.instances.costing.layer_modes import ModelledOn, Rates, cluster_rates
from placegap.instances.costing.onnx_flops import Node, count_flops
from placegap.instances.costing.weight_formats import configured_format, weight_format
from placegap.instances.exporters.read_lines import read_line
from placegap.instances.exporters.table import export_plan
from placegap.instances.files.cluster_text import find_kind
from placegap.instances.files.document import Document, from_networkx, load_document
from placegap.instances.files.output_files import reserve_outputs
from placegap.instances.files.plan_file import load_stated_plan
from placegap.instances.importers.dnn_partitioning import load_dnn_partitioning, load_split
from placegap.instances.importers.measured_times import load_times, with_times
from placegap.instances.importers.measurements import load_links, load_ops, load_tensors
from placegap.instances.importers.onnx_model import load_onnx
from placegap.instances.importers.standard_evaluation import standard_evaluation
from placegap.instances.problem import Times, Transfer, parse_semantics
from placegap.instances.problem.links import Group, Links
from placegap.instances.problem.modules import with_granularity
from placegap.instances.problem.op_kernel import AttentionKernel, ExpertsKernel, MatrixProduct
from placegap.instances.torch_models.model import build_model
from placegap.instances.torch_models.options import TraceOptions
from placegap.instances.torch_models.profile import profile_model
from placegap.instances.transforms.merge import merge_groups
from placegap.instances.transforms.moirai_fusion import load_rules
from placegap.instances.transforms.one_pipeline import one_pipeline
from placegap.instances.transforms.op_splitting import Cut, replicate, split_ops
from placegap.instances.transforms.pesto_merge import merge_ops
from placegap.instances.transforms.table import coarsen, find_transform
from placegap.instances.transforms.traced_layers import traced_layers


def file(folder: Path, name: str, content: object) -> Path:
    """A file of this text, or of this content as JSON."""
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


# ------------------------------------------------------------------------------- files of clusters

TWO = """\
name: two
devices:
  - {name: d, count: 2, kind: T4}
links:
  - {all_to_all: all, bandwidth_bytes_per_s: 1000, latency_ns: 5}
"""
NUMBERS = "bandwidth_bytes_per_s: 1000, latency_ns: 5"
UNLIKE = TWO.replace(NUMBERS, "measured: true").replace("T4}", "T4}\n  - {name: e, kind: P4}")
CARDS = "name: c\ndevices: [{name: a, kind: L40S, server: x}, {name: b, kind: L40S}]\n"
RATES = "peak_flops_per_s: 2e13, bandwidth_bytes_per_s: 5e11"


def cluster_file(folder: Path, old: str, new: str) -> object:
    return load_cluster(file(folder, "c.yaml", TWO.replace(old, new)))


def cluster_of(folder: Path, entries: str) -> Cluster:
    text = "name: c\ndevices:\n" + "".join(f"  - {line}\n" for line in entries.split(";"))
    return load_cluster(file(folder, "c.yaml", text))


def catalogue_file(folder: Path, old: str, new: str) -> object:
    good = """\
X:
  peak_flops_per_s: 10
  bandwidth_bytes_per_s: 20
  memory_bytes: 30
  launch_overhead_ns: 0
  source: a datasheet
"""
    return load_catalogue(file(folder, "devices.yaml", good.replace(old or good, new)))


def kinds_file(folder: Path, kind: str) -> object:
    return load_cluster("T4+own, pcie4", file(folder, "kinds.yaml", f"own: {{{kind}}}\n"))


def times_of_another_card(folder: Path) -> object:
    op = Op(name="a", flops=10**9, bytes_moved=0)
    known = cost_graph(Graph(name="g", ops=(op,)), cluster_of(folder, "{name: d, kind: T4}"))
    faster = cluster_of(folder, "{name: d, kind: T4, bandwidth_bytes_per_s: 4e11}")
    return cost_graph(known, faster)


CLUSTERS = [
    Refusals(
        "c.yaml: ",
        cluster_file,
        [
            ("count: 2", "cuont: 2", "devices[0] 'd'.cuont: unknown field"),
            ("kind: T4", "kind: T5", "devices[0] 'd': kind 'T5' is not in the catalogue"),
            ("count: 2", "names: [a]", "devices[0] 'd': give either name or names"),
            ("T4}", "T4}\n  - {name: d1, kind: P4}", "'d1' appears twice"),
            ("bandwidth_bytes_per_s: 1000, ", "", "links[0]: bandwidth_bytes_per_s is needed"),
            ("ns: 5", "ns: -5", "links[0].latency_ns: …(got -5)"),
            ("all_to_all: all, ", "", "links[0]: give one of source"),
            ("all_to_all: all", "source: d0", "links[0]: source and target go together"),
            ("all_to_all: all", "between: [d0, e]", "links[0]: there is no device 'e'"),
            (NUMBERS, "measured: true", "links[0]: no link of 'T4' is measured, only links of A1"),
            (NUMBERS, "measured: 1", "links[0].measured: …bool"),
            ("latency_ns: 5", "measured: true", "links[0]: measured replaces bandwidth_b"),
            (NUMBERS[:27], "measured: true", "links[0]: measured replaces …latency_ns"),
            (NUMBERS, "", "links[0]: bandwidth_bytes_per_s is needed, except … or measured"),
            (TWO, UNLIKE, "links[0]: … equal cards of one server, not d1 (T4), e (P4)"),
            ("all_to_all: all", "between: [d0, d0]", "links[0]: joins 'd0' with itself"),
            (
                "5}",
                "5}\n  - {source: d0, target: d1, bandwidth_bytes_per_s: 1}",
                "links[1]: 'd0' -> 'd1' appears",
            ),
            (TWO, "a: [1, 2", "line 1, column 9: "),
            (TWO, "[" * 1000, "nested too deeply"),
            (
                TWO,
                f"{CARDS}links: [{{between: [a, b], measured: true}}]",
                "links[0]: … of one server, not a (L40S x), b (L40S",
            ),
            (TWO, f"{CARDS}links: [{{between: [a, c], measured: true}}]", "links[0]…c (no device)"),
            (
                TWO,
                TWO.replace("T4", "T4, memory: 9, reserved_bytes: -1").replace(NUMBERS, "width: 2"),
                "devices[0] 'd'.reserved_bytes: must be at least 0 (got -1)…"
                "devices[0] 'd'.memory: unknown field (got 9); did you mean 'memory_bytes'?…"
                "links[0].width",
            ),
            *(
                ("1000", rate, "links[0].bandwidth_bytes_per_s")
                for rate in ("4611686018427387905.0", "1e999", "fast", "2.5", "yes")
            ),
        ],
    ),
    Refusals(
        "c.yaml: devices[",
        cluster_of,
        [
            ("{name: d, memory_bytes: 5}", "'d': has no kind; state its peak_flops_per_s and band"),
            ("{name: d, kind: own, peak_flops_per_s: 1}", "state its bandwidth_bytes_per_s and me"),
            ("{name: d, kind: T4, peak_flops_per_s: {fp16: 5}}", "no number type 'fp16'; choose"),
            ("{name: d, kind: T4, peak_flops_per_s: {1: 5}}", "there is no number type 1; choose"),
            ("{name: d, kind: T4, reserved_bytes: 17e9}", "reserved_bytes, 17000000000, is more"),
            ("{name: d, kind: T4, memory_bytes: null, reserved_bytes: 1}", "part of memory_bytes"),
            (
                "{name: a, kind: T4};{name: b, kind: T4, launch_overhead_ns: 0}",
                "'b': its kind 'T4' has other rates in devices[0]; give one of them",
            ),
        ],
    ),
    Refusals(
        "kinds.yaml: ",
        kinds_file,
        [(f"{RATES}, memory_bytes: 64e9, is_host: true, is_cpu: false", "is_cpu and is_host")],
    ),
    Refusals(
        "", times_of_another_card, [("'T4' were costed at bandwidth…give the devices a kind",)]
    ),
    Refusals(
        "devices.yaml: ",
        catalogue_file,
        [
            ("  memory_bytes: 30\n", "", "X.memory_bytes: field is missing"),
            ("s: 10", "s: 1.5e0", "X.peak_flops_per_s.float32: …integer (got '1.5e0')"),
            ("s: 10", "s: {float16: 0}", "X.peak_flops_per_s.float16: …greater than 0"),
            ("memory_bytes: 30", "memory_bytes: 1.5", "X.memory_bytes: …whole number…(got 1.5)"),
            ("source", "sauce", "X.sauce: unknown field"),
            ("  source", "  memory_bytes: 1\n  source", "line 6, column 3: key 'memory_bytes' app"),
            ("", "X: [", "line 1, column 5: "),
        ],
    ),
    Refusals(
        "there is no cluster '{0}'",
        lambda _, text: load_cluster(text),
        [
            ("V100", "did you mean '2xV100-pcie'…Device kinds with similar names: V100-16GB"),
            ("T4-pcie", "did you mean '2xT4-pcie'"),  # a count is never left out
            ("DGX", "DGX-Spark…--devices FILE states other kinds"),
            ("moirai", "did you mean 'moirai-inter-server' or 'moirai-intra-server'"),
            # what begins or ends inside a word is no part of a name
            *((part, "") for part in ("100-nvlink", "8xH10", "16GB", "xT4-pcie")),
        ],
    ),
    Refusals(
        "cluster '{0}': ",
        lambda _, text: load_cluster(text),
        [
            ("4xV100", "name its link: '4xV100-16GB, nvlink', or celeritas-4xV100-pcie"),
            ("2xRTX3090", "name its link: '2xRTX3090, nvlink'"),  # and no two TitanRTX
            ("8xP100", "'8xP100-16GB, nvlink', or fd-dps-2x4P100-containers, or fd-dps-8xP100"),
            ("2x8xT4", "name its link: '2x8xT4, pcie4, infiniband'"),
            ("4xV100:16GB", "no device kind 'V100'; did you mean 'V100-16GB'"),
            ("2xRTX3090+host", "what joins its devices"),
            ("0xT4", "0 devices: leave that part out"),
            ("2xRTX3091, pcie4", "no device kind 'RTX3091'; did you mean 'RTX3090'"),
            ("2xT4, pcie9", "no kind of link 'pcie9'; did you mean 'pcie3'"),
            ("3xT4+P4", "what joins its devices"),
            ("2x2xT4, pcie3", "what joins the servers…ethernet-1g"),
            ("2x(8xT4)", "what joins the devices of a server"),
            ("2xT4, pcie3, infiniband", "infiniband joins servers, but none are named"),
            ("2xT4+RTX3090, nvlink", "T4 has no nvlink link: add pcie3"),
            ("2xT4, measured", "links[0]: no link of 'T4' is measured"),
            ("L40S+H200, measured", "equal cards of one server, not L40S (L40S), H200 (H200)"),
            ("2xL40S+host, measured", "DDR5-2ch has no measured link: add pcie3"),
            ("2xH100, nvlink, measured", "nvlink and measured are both of one kind; leave one out"),
            ("2xT4+2x2xT4, pcie3, infiniband", "2xT4 is not in a server, as others are; write 1x"),
            ("2x(T4+(host)), pcie3", "is not a number of devices and their kind"),
            ("2xT4:big, pcie3", "'big' is not a memory size"),
            ("2xT4@pcie3x4+P4", "P4 has no link: add pcie3"),
            ("2xRTX3090@nvlink", "nvlink cannot follow a card; write it after the comma"),
            ("2xT4@pcie3x3", "no kind of link 'pcie3x3'; did you mean 'pcie3'"),
            ("RTX5060Ti, pcie4", "no device kind 'RTX5060Ti'; did you mean 'RTX5060Ti-8GB'"),
            ("99999x9xT4, pcie3, infiniband", "899991 devices, above the limit of 100000"),
            # cards of other memory and speed than those that the catalogue has
            ("8xH20-141GB", "no device kind 'H20-141GB'…--devices FILE states other kinds"),
            ("2xRTX6000, pcie4", "RTX6000Ada…--devices FILE states other kinds"),
        ],
    ),
    Refusals(
        "there is no device kind ",
        lambda _, name: find_kind(name, catalogue()),
        [
            (name, f"'{name}'")
            for name in ("H10", "100-80GB", "RTX309", "4070TiSupe", "80GB-PCIe", "V100")
        ],
        ValueError,
    ),
    Refusals(
        "",
        lambda _, *groups: Links(groups).check("abc"),
        [
            (Group(("a", "b"), 1), Group(("b", "c", "a"), 1), "links[1]: 'b' -> 'a' appears"),
            (
                Group(("b", "c", "a"), 1),
                Link(source="a", target="b", bandwidth_bytes_per_s=1),
                "links[1]: 'a' -> 'b' appears twice",
            ),
            (Group(("b", "b"), 1), "links[0]: joins 'b' with itself"),
            (Group(("b", "x"), 1), "links[0]: there is no device 'x'"),
        ],
        ValueError,
    ),
]

# ------------------------------------------------------------------ graphs, clusters and semantics

BARE: dict[str, Any] = {"transfer_ns": ((0, 0), (0, 0))}


def called(_: Path, call: Callable[..., object], *given: Any) -> object:
    return call(*given)


def ops(*names: str, **fields: Any) -> tuple[Op, ...]:
    return tuple(Op(name=name, **{"time_ns": {"gpu": 1}, **fields}) for name in names)


def graph(*edges: str, **fields: Any) -> Graph:
    """Ops a to f; edges as "ab", with 1, 2, 3 bytes."""
    sized = [Edge(producer=a, consumer=b, bytes=at, **fields) for at, (a, b) in enumerate(edges, 1)]
    return Graph(name="g", ops=ops(*"abcdef"), edges=tuple(sized))


def pair(first: dict[str, Any], second: dict[str, Any]) -> Graph:
    return Graph(name="g", ops=(*ops("a", **first), *ops("b", **second)))


def on_pair(readers: str, **fields: Any) -> Instance:
    """A tensor of a with these readers and fields; two devices with 1 byte/s between them."""
    ends = tuple(Edge(producer="a", consumer=b, tensor="t", **fields) for b in readers)
    links = draw.links(2, lambda a, b: (1, 0))
    return draw.instance_of("i", ops(*"abcdef"), ends, draw.devices(["gpu"] * 2), links)


def one_way() -> Instance:
    devices = tuple(Device(name=name, kind="gpu") for name in ("g0", "g1"))
    links = (Link(source="g0", target="g1", bandwidth_bytes_per_s=1),)
    cluster = Cluster(name="c", devices=devices, links=links)
    return Instance(name="i", graph=graph("ab"), cluster=cluster)


KEEP = Mode(name="keep", time_ns={"gpu": 10}, parameter_bytes=6, state_bytes=8, held_bytes=5)
AGAIN = Mode(name="again", time_ns={"gpu": 14}, parameter_bytes=6, state_bytes=9, held_bytes=1)


def layers(*modes: Mode, **fields: Any) -> Instance:
    """Layers a -> b on four devices; b has these modes and fields."""
    first, second = ops("a", "b", modes=(KEEP, AGAIN))
    second = second.model_copy(update={"modes": modes or (KEEP,), **fields})
    links, devices = draw.links(4, lambda a, b: (10**9, 0)), draw.devices(["gpu"] * 4)
    edge = Edge(producer="a", consumer="b", bytes=3)
    return draw.instance_of("ab", (first, second), [edge], devices, links)


def hybrid(instance: Instance) -> object:
    plan = Plan(((0, 1), (2, 3)), stage=(0, 1), tensor=(1, 1), mode=("keep", "keep"))
    return evaluate(instance, plan, HybridPipeline(microbatches=4, degrees="free"))


def bubble(degrees: str) -> object:
    return HybridPipeline.model_validate({"degrees": degrees, "bubble": True})


def document(folder: Path, *place: Any) -> object:
    """The good document with another value at this place of it."""
    *keys, last, value = place
    content = part = good_document()
    for key in keys:
        part = part[key]
    part[last] = value
    return load_document(file(folder, "net.json", content))


KERNEL = "graph", "ops", 1, "kernel"
SIZES = {"type": "product", "m": 8, "n": 5, "k": 3, "dtype": "float16"}
EXPERTS = ExpertsKernel(tokens=7, hidden=4, inner=6, chosen=2, experts=8, dtype="bfloat16")
ATTENTION = AttentionKernel(
    phase="generation",
    batch=3,
    heads=4,
    kv_heads=2,
    head_size=8,
    new_tokens=1,
    dtype="bfloat16",
    cache_dtype="bfloat16",
)

PROBLEMS = [
    Refusals(
        "",
        called,
        [
            (graph, "ab", "ba", "cycle: a -> b -> a"),
            (lambda: graph("ab", "ac", tensor="t"), "tensor 't' has another size"),
            (lambda: Graph(name="g", ops=ops(*"abc", time_ns={"gpu": 2**61})), "above 2**62"),
            (lambda: on_pair("b", bytes=2**60), "above 2**62"),  # at 1 byte/s 2**60 * 1e9 ns
            (lambda: on_pair("b", **BARE, host_time_ns=2**61), "above 2**62"),  # twice, and an op
            # moved out once and into five calls of 2**60 ns each; two host times are below 2**62
            (lambda: on_pair("bcdef", **BARE, host_time_ns=2**60), "above 2**62"),
            (lambda: on_pair("b", transfer_ns=((0,) * 3,) * 3), "2 rows and columns"),
            (one_way, "no path leads from 'g1' to 'g0'"),
            (
                lambda: Cluster(name="c", devices=(Device(name="a -> b", kind="gpu"),)),
                "must not hold ' -> '",
            ),
            (
                pair,
                *({"modes": (m,), "colocation": "g"} for m in (KEEP, AGAIN)),
                "other names…state the same for all its ops",
            ),
            (
                pair,
                {"shared_state": {"t": 5}},
                {"shared_state": {"t": 6}},
                "'b': shared_state 't' has 6 bytes here and 5 in 'a'",
            ),
            (layers, KEEP, KEEP, "'keep' for tensor 1 appears twice"),
            (layers, KEEP.model_copy(update={"sharded_bytes": 9}), "more sharded_bytes"),
            (layers, KEEP.model_copy(update={"leave_bytes": {"a": 1}}), "leave_bytes for 'a',"),
            (
                parse_semantics,
                {"objective": "latency_subgraphs", "memory": "peak"},
                "memory belongs to makespan",
            ),
            (bubble, "one_t", "not count for degrees one_t; add --degrees one"),
            (bubble, "free", "not count for degrees free; add --degrees one"),
        ],
        ValueError,
    ),
    Refusals(
        "",
        lambda _, network: from_networkx(network),
        [
            (nx.Graph([("a", "b")]), "must be directed"),
            (nx.DiGraph([("a", "b"), ("b", "a")]), "cycle: a -> b -> a"),
            (nx.DiGraph([("a", "b", {"weight": 2})]), "edges[0] 'a -> b'.weight: unknown field"),
        ],
    ),
    Refusals(
        "net.json: ",
        document,
        [
            (*KERNEL, {**SIZES, "m": 0}, "ops[1] 'second'.kernel.m: …than 0 (got 0)"),
            (*KERNEL, {**SIZES, "rows": 8}, "'second'.kernel.rows: unknown field (got 8)"),
            (
                *KERNEL,
                {**SIZES, "type": "produce"},
                "kernel.type: must be 'product', 'attention' or 'mixture_of_experts'",
            ),
            (*KERNEL, {"m": 8}, "kernel.type: field is missing"),
            (*KERNEL, 5, "kernel: must be an object (got 5)"),
            (*KERNEL, {**EXPERTS.model_dump(), "chosen": 1.5}, "kernel.chosen: must be a valid"),
            (*KERNEL, {**ATTENTION.model_dump(), "phase": "decode"}, "kernel.phase: must be 'cont"),
            ("semantics", 5, "semantics: must be an object (got 5)"),
            ("semantics", {"channels": "port"}, "semantics.objective: field is missing"),
            (
                "semantics",
                {"objective": "makspan"},
                # behind the long path of a file words in the middle lose theirs
                "semantics.objective: must be 'makespan', 'max_load', 'max_load_fwd_bwd',…"
                " or 'serving_flow' (got 'makspan'); did you mean 'makespan'?",
            ),
            (
                "semantics",
                {"objective": "makespan", "channels": "wire"},
                "semantics.channels: must be 'free', 'link', 'port' or 'half_duplex' (got 'wire')",
            ),
            (
                "semantics",
                {"objective": "makespan", "plans": "chain"},
                "semantics: plans belongs to max_load, max_load_fwd_bwd and max_context, not to m",
            ),
            ("semantics", {"objective": "makespan", "pace": 1}, "semantics.pace: unknown field"),
            (
                "semantics",
                {"objective": "makespan", "channel": 1},
                "semantics.channel: unknown field (got 1); did you mean 'channels'?",
            ),
        ],
    ),
]

# ----------------------------------------------------------------------------------- plans, values

BEST = Plan.on([0, 1, 0, 0])
SPANS = {"op1": (0, 5), "op2": (6, 26), "op3": (5, 15), "op4": (27, 35)}
OPS = {name: {"start_ns": a, "end_ns": b} for name, (a, b) in SPANS.items()}
ONE = {"producer": "op1", "consumer": "op2", "to": "gpu1", "start_ns": 5, "end_ns": 6}
BACK = [{"producer": "op2", "consumer": "op1", "to": "gpu1"}]


def plan_file(folder: Path, change: dict[str, Any]) -> Path:
    """The best plan of the diamond as a file with its times, and parts of it changed."""
    moves = {Transfer(0, 1): (5, 6), Transfer(2, 0): (26, 27)}
    times = Times(tuple(SPANS.values()), moves)
    save_plan(example(), BEST, Makespan(), folder / "plan.json", value=35, times=times)
    content = json.loads((folder / "plan.json").read_text())
    return file(folder, "plan.json", {**content, **change})


ENTRY = {"graph": "g", "cluster": "c", "content_hash": "0" * 64}
ENTRY = {**ENTRY, "semantics": {"objective": "makespan"}}


def on_servers(last: str | None, *edges: Edge) -> object:
    """Three ops on devices of the servers s, s and another."""
    devices = [Device(name=f"d{k}", kind="gpu", server=x) for k, x in enumerate(("s", "s", last))]
    links = draw.links(3, lambda a, b: (1, 0))
    instance = draw.instance_of("servers", ops(*"abc"), edges, devices, links)
    return evaluate(instance, Plan.on([0] * 3), MaxLoad(plans="any", levels=2))


def zero_bubble(*marked: str) -> object:
    """A training step of two layers, with these ops marked as weight gradients."""
    row = split_row([1, 1], [1, 1], [1, 1])
    own = [op.model_copy(update={"weight_gradient": op.name in marked}) for op in row.graph.ops]
    graph = row.graph.model_copy(update={"ops": tuple(own)})
    rules = PipelineIteration(schedule="zero_bubble", microbatches=8)
    return evaluate(row.with_graph(graph), Plan.on([0, 1] * 3), rules)


def interleaved() -> object:
    rules = PipelineIteration(schedule="interleaved", stages_per_device=64, microbatches=4096)
    row = stage_row([1] * 192, [1] * 192, num_devices=3)
    return evaluate(row, Plan.on([0] * 384), rules)


def long_row() -> object:
    rules = PipelineIteration(microbatches=4096)
    return evaluate(stage_row([2**55], None), Plan.on([0]), rules)


NO_NUMBERS = (math.inf, math.nan, 1.5, "1", None, Decimal("NaN"), 1j)

PLANS = [
    Refusals(
        "plan.json: ",
        lambda folder, change: load_plan(example(), plan_file(folder, change)),
        [
            ({"call": {"op1": 0}}, "call: op 'op2' has none"),
            ({"format": "placegap"}, "is not a plan"),
            ({"placement": {"op1": "gpu0"}}, "placement: op 'op2' is not placed"),
            ({"placement": dict.fromkeys(OPS, "gpu7")}, "no device 'gpu7'"),
            ({"placement": dict.fromkeys(OPS, "gpu_0")}, "no device 'gpu_0'…did you mean 'gpu0'"),
            ({"device_order": {"gpu0": ["op1", "op7"]}}, "no op 'op7'"),
            ({"channel_order": {"into gpu9": []}}, "no channel 'into gpu9'"),
            ({"channel_order": {"into gpu1": BACK}}, "no transfer"),
            ({"speed": 3}, "speed: unknown field"),
        ],
    ),
    Refusals(
        "plan.json: ",
        lambda folder, change: load_stated_plan(example(), plan_file(folder, change)),
        [
            ({"value_ns": 34.5}, "value_ns"),
            ({"times": {"ops": {**OPS, "op1": {"start_ns": -1, "end_ns": 4}}}}, "start_ns"),
            ({"times": {"ops": {"op1": OPS["op1"]}}}, "op 'op2' has none"),
            ({"times": {"ops": OPS, "transfers": [ONE, ONE]}}, "comes twice"),
            ({"times": {"ops": OPS, "transfers": [{**ONE, "to": "gpu3"}]}}, "no device 'gpu3'"),
            ({"times": {"ops": OPS, "transfers": [{**ONE, "consumer": "op4"}]}}, "no transfer"),
            ({"semantics": {"objective": "makespan", "plans": "chain"}}, "not to makespan"),
            ({"semantics": {"objective": "max_load", "plans": "any"}}, "times: not defined"),
        ],
    ),
    Refusals(
        "best.json: ",
        lambda folder, entries: load_best_known(file(folder, "best.json", entries)),
        [
            ([{**ENTRY, "value_ns": 9.5}], "[0].value_ns: …(got 9.5)"),
            ([{**ENTRY, "value": 9}], "[0].value: unknown field"),
            ([{**ENTRY, "value_ns": 9, "bound_ns": 11}], "[0]: bound 11"),
            ("[[{", "is not valid JSON"),
            ([{**ENTRY, "value_ns": 9}] * 2, "[1]: … appears twice"),
        ],
    ),
    Refusals(
        "",
        called,
        [
            *((Plan.on, [odd, 0], "whole numbers…, not ") for odd in NO_NUMBERS),
            *((Plan.on, [0, 0], [[0, odd], []], "whole numbers…, not ") for odd in NO_NUMBERS),
            *((Plan, odd, "placement") for odd in (None, 3, math.nan, True)),
            *((Plan, ((0,),), odd, "device_order") for odd in (3, math.nan, True)),
            *(
                (load, odd, "has a name")
                for odd in (-(2**63), 2**70, 0, math.nan, None, True)
                for load in (load_model, load_cluster, lambda path: load_plan(example(), path))
            ),
            (hybrid, layers(backward=True), "'b' is backward…state modes of whole layers"),
            (hybrid, layers(KEEP.model_copy(update={"time_ns": {"x": 1}})), "'b'…add one to its"),
            (on_servers, None, "'d2' has none"),
            (
                on_servers,
                "t",
                Edge(producer="a", consumer="b", host_time_ns=3),
                "'a -> b' has only a host time",
            ),
            (zero_bubble, "no backward op is marked weight_gradient…--weight-gradients"),
            (zero_bubble, "b1", "'b1' is marked weight_gradient and feeds 'b0'"),
            (long_row, "use fewer"),
            # 4096 microbatches, forward and backward, through 64 * 3 stages
            (interleaved, "1572864 events, above the limit of 1000000"),
        ],
    ),
]

# ------------------------------------------------------------------------- files of other programs

TIMES, MEASURED = "name,device_kind,time_ns\n", "op,device,batch,time_ns,memory_bytes\n"
GRAPH = Graph(name="net", ops=(Op(name="a", time_ns={"T4": 9}), Op(name="b", flops=10**9)))


def split_file(folder: Path, content: str) -> object:
    instance = load_dnn_partitioning(file(folder, "input.json", good_dnn())).instance()
    return load_split(instance, file(folder, "split.json", content))


def measured_times(folder: Path, text: str, *kinds: str) -> object:
    devices = tuple(Device(name=kind, kind=kind) for kind in kinds)
    times = load_times(file(folder, "times", text))
    return with_times(GRAPH, times, Cluster(name="c", devices=devices))


def measurements(folder: Path, text: str | bytes) -> object:
    path = folder / "m.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_ops([path])


def event(dur: Any) -> str:
    name = {"ph": "X", "cat": "user_annotation", "name": "op:a", "ts": 1, "pid": 1, "tid": 1}
    return json.dumps([{**name, "dur": dur}])


def piper_file(folder: Path, damage: Callable[[Any], object]) -> object:
    content = good_piper()
    damage(content)
    return load_model(file(folder, "input.json", content))


def without_cluster() -> dict[str, Any]:
    return {key: part for key, part in good_document().items() if key != "cluster"}


def estimate(folder: Path, rows: str, batch: int, **others: str) -> object:
    """Standard Evaluation of the diamond with these rows; others: of links or tensors."""
    header = {
        "links": "source,target,bytes,time_ns\n",
        "tensors": "producer,consumer,batch,bytes\n",
    }
    read = {"links": load_links, "tensors": load_tensors}
    parts = {
        part: read[part](file(folder, "p.csv", header[part] + row)) for part, row in others.items()
    }
    ops = load_ops([file(folder, "m.csv", MEASURED + rows)])
    diamond = Document.of(example())
    return standard_evaluation(diamond, example().cluster, ops, batch, **parts)


def straight(*batches: int) -> str:
    return "".join(f"op{n},gpu,{b},{10 + b},{b}\n" for n in (1, 2, 3, 4) for b in batches)


def onnx_file(folder: Path, build: Callable[[Any], Any], **dims: int) -> object:
    """What `build` makes of the double of ONNX nets: nodes on an input x, or a file."""
    nets = pytest.importorskip("doubles.onnx_nets")
    made = build(nets)
    if isinstance(made, list):
        path = nets.save(folder, made, [nets.tensor("x", 1)])
    else:
        path = made(folder)
    return load_onnx(path, {key.replace("_", "."): size for key, size in dims.items()})


def choice(nets: Any) -> list[Any]:
    branch = nets.helper.make_graph(nets.nodes("Relu x > t"), "branch", [], [nets.tensor("t", 1)])
    return list(nets.nodes("choose: If x > y", then_branch=branch, else_branch=branch))


def magic(nets: Any) -> list[Any]:
    return [*nets.nodes("wand: Magic x > m", domain="own"), *nets.nodes("Relu m > y")]


def two_inputs(nets: Any) -> Callable[[Path], Path]:
    """Files whose inputs ids and mask leave dimensions open."""
    inputs = [nets.tensor("ids", "N", "L", "?"), nets.tensor("mask", "N", "L", "?")]
    for value in inputs:
        value.type.tensor_type.shape.dim[2].Clear()
    net = nets.nodes("Relu ids > a; Relu mask > b")
    return lambda folder: Path(nets.save(folder, net, inputs, "a b"))


FILES = [
    Refusals(
        "",
        lambda folder, rows, batch, others: estimate(folder, rows, batch, **others),
        [
            ("nosuch,gpu,1,1,1\n", 64, {}, "m.csv: row 2: the model has no op 'nosuch'"),
            ("op1,tpu,1,1,1\n", 64, {}, "m.csv: row 2: the cluster has no device of kind"),
            (straight(64), 64, {}, "all rows of the time have batch 64"),
            (f"op1,gpu,1,1,1\nop1,gpu,2,{2**53},1\n", 10**6, {}, "above 2**62"),
            (straight(1, 2), 8, {"links": "gpu0,gpu9,1,1\n"}, "p.csv: row 2: …no device 'gpu9'"),
            (straight(1, 2), 8, {"links": "gpu0,gpu1,0,1\n"}, "no bandwidth: measure two or more"),
            (straight(1, 2), 8, {"tensors": "op4,op1,1,1\n"}, "p.csv: row 2:…edge 'op4' -> 'op1'"),
        ],
    ),
    Refusals(
        "net.onnx: ",
        lambda folder, build, dims: onnx_file(folder, build, **dims),
        [
            (choice, {}, "node 'choose' (If): control flow has no static graph"),
            (
                lambda nets: (
                    nets.nodes("wand: Magic x > m", domain="own") + nets.nodes("Relu m > y")
                ),
                {},
                "node 'wand' (Magic): the shape of 'm' cannot be inferred",
            ),
            (
                lambda nets: nets.nodes("sum: Einsum x x > y", equation="ij,jk->ik"),
                {},
                "node 'sum' (Einsum): the shape of 'y' cannot be inferred (Rank of",
            ),
            (
                lambda nets: nets.nodes("Relu b > y; Relu y > b"),
                {},
                "'y' (Relu): no earlier node writes its input 'b'",
            ),
            (lambda nets: nets.nodes("Relu x > y; Relu x > y"), {}, "output 'y' is written twice"),
            (
                lambda nets: nets.nodes("Constant > y", value=nets.weight("v", 1)),
                {},
                "no node is left after folding constants",
            ),
            (lambda nets: [], {}, "is not an ONNX model, or a model without nodes"),
            (
                lambda nets: lambda folder: file(folder, "net.onnx", "not a model"),
                {},
                "is not an ONNX model",
            ),
            # all sizes that are missing are asked for at once
            (two_inputs, {}, "3 dimensions are not known…--dim L=SIZE --dim ids.2=SIZE --dim mask"),
            (two_inputs, {"L": 2, "ids_2": 3}, "dimension 2 (mask.2)…state it (--dim mask.2=SIZE)"),
            (two_inputs, {"L": 0}, "dims: 'L' must be a positive integer"),
            (two_inputs, {"L": 7, "mask_1": 8}, "'mask.1' is 8 and 7; state one"),
            (two_inputs, {"x_2": 5}, "dimension 'x.2' open, only: N, L, ids.2, mask.2"),
        ],
    ),
    Refusals(
        "split.json: ",
        split_file,
        [
            ('{"fpgas": [{"nodes": [1, 9]}]}', "fpgas[0]: there is no op '9'"),
            ('{"fpgas": [{"nodes": [1]}, {"nodes": [1]}]}', "fpgas[1]: op '1' is on another"),
            ('{"cpus": [{"nodes": [1]}, {"nodes": [2]}]}', "cpus: 2 devices, but input has 1"),
            ('{"cpus": [{"nodes": [1]}]}', "op '2' is on no device"),
            ('{"cpus": [{"nodes": [1]', "is not valid JSON"),
        ],
    ),
    Refusals(
        "times: ",
        measured_times,
        [
            ("name,time_ns\n", "row 1: column 'device_kind' is missing; the header is name,device"),
            (TIMES + "a,,1\n", "row 2: device_kind is empty; name it"),
            (TIMES + "a,T4,-1\n", "row 2: time_ns must be a number from 0 to 2**53"),
            (TIMES + "a,P4,1\n", "T4", "has times on P4, none on the cluster's T4"),
            (TIMES + "conv,T4,1\n", "T4", "no name in it is an op of 'net'"),
            (event(4), "T4", "P4", "does not say on which of P4, T4 it was made"),
            ('{"events": []}', "is not a trace: it has no list 'traceEvents'"),
            ("[]", "holds no annotated op; run each op under record_function('op:' + its name)"),
            (event(None), "traceEvents[0]: dur must be a number of microseconds"),
            (event(-1), "traceEvents[0]: dur must be from 0 to 2**53 ns"),
        ],
    ),
    Refusals(
        "m.csv: ",
        measurements,
        [
            ("", "is empty"),
            (MEASURED, "has a header but no rows; add the measurements"),
            (b"op\xff,device", "is not UTF-8 text"),
            ("op,device,batch,time_ns\na,gpu,1,2\n", "row 1: column 'memory_bytes' is missing"),
            ("op;device;batch;time_ns;memory_bytes\n", "row 1: unknown column 'op;device;batch"),
            (MEASURED.replace("op", "op,op", 1), "row 1: column 'op' is there twice"),
            (MEASURED + "a,gpu,1,2,3\n,gpu,1,2,3\n", "row 3: op is empty; name it"),
            (MEASURED + "a,gpu,1.5,2,3\n", "row 2: batch must be a whole number (got '1.5')"),
            (MEASURED + "a,gpu,1,-1,3\n", "row 2: time_ns must be a number from 0 to 2**53"),
            (MEASURED + 'a,gpu,1,2,"3\n', "row 2: is not CSV"),
            (MEASURED + "a,gpu," + "9" * 5000 + ",2,3\n", "row 2: batch must be"),
        ],
    ),
    Refusals(
        "p.csv: ",
        lambda folder, text: load_tensors(file(folder, "p.csv", text)),
        [("source,target,bytes,time_ms\n", "row 1: unknown column 'source'; the header is prod")],
    ),
    Refusals(
        "input.json: ",
        piper_file,
        [
            (lambda c: c["nodes"][0].update(TMPCs={}), "nodes of id 0: TMPCs has no option"),
            (
                lambda c: c["nodes"][0]["TMPCs"].update({"1.5": []}),
                "nodes of id 0: TMPCs has '1.5'; a number of devices is 1, 2, ..",
            ),
            (lambda c: c["nodes"][1].update(id=0), "id 0 appears twice"),
            (lambda c: c["edges"][0].update(destId=7), "there is no node of id 7"),
            (lambda c: c["nodes"][0]["TMPCs"]["1"][0].pop("timePerSample"), "timePerSample"),
            (
                lambda c: c["edges"].append({"sourceId": 1, "destId": 0, "communicationCost": 1}),
                "cycle",
            ),
            (lambda c: c.update(mbsInBatch=0), "mbsInBatch is 0"),
        ],
    ),
    Refusals(
        "own.json: ",
        lambda folder, unit: load_model(
            file(folder, "own.json", without_cluster()), unit
        ).instance(),
        [("ms", "states its times in ns"), (None, "has no default cluster; pass one (--cluster)")],
    ),
    Refusals(
        "",
        lambda folder, name: load_model(file(folder, "file", "{}").parent / name),
        [
            ("none", "none: No such file"),
            ("file/below", "file/below: Not a directory"),
            ("a\0b.json", "is not a file name"),
        ],
    ),
    Refusals(
        "{0}: ",
        lambda folder, name: ((folder / "folder").mkdir(), reserve_outputs(folder / name)),
        [
            ("folder", "is a folder; name a file in it"),
            ("none/a.json", "cannot be written: its folder does not exist"),
        ],
    ),
    Refusals(
        "rules.yaml: ",
        lambda folder, text: load_rules(file(folder, "rules.yaml", text)),
        [
            ("rules: [[conv]]", "rules[0]: must have 2 items or more"),
            ("rules: []", "the list is empty; state at least one"),
            ("rules: [[a, b], [a, b]]", "rules[1]: [a, b] appears twice"),
            ("rules: [[a, b]]\nkind: {}", "kind: unknown field"),
            ("extends: default\nrules: []\nkinds: {cnv: [Conv]}", "kinds.cnv: no rule names it"),
            ("- 1", "it has no 'rules'"),
        ],
    ),
]

# ---------------------------------------------------------------------------------- lines of tools

MAP_OF_BACK = '[["embed", "layers.1"], ["layers.0", "layers.2", "layers.3", "head"]]'


def map_file(folder: Path, content: str) -> object:
    return read_line(home_model(gpus=2), str(file(folder, "map.json", content)))


LINES = [
    Refusals(
        "",
        lambda _, text: read_line(home_model(gpus=2), text),
        [
            ("--kt-num-gpu-experts 3", "does not say how many experts a layer has"),
            ("-m x.gguf", "has no option of llama.cpp"),
            ("-ngl", "-ngl needs a value"),
            ("-ngl x", "'x' is not a number"),
            ("-ngl 5 -ts 1,a", "'a' is not a number"),
            ("-ngl 5 -ts 0,0", "-ts has no share above 0"),
            ("-ngl 5 --device CUDA7", "there is no GPU 'CUDA7' among the 2 of the cluster"),
            ("-ngl 5 -ot 'attn=CPU'", "-ot moves 6 tensors of layer 0, such as attn_k"),
            ("-ngl 5 -ot exps", "-ot 'exps' is no PATTERN=DEVICE"),
            ("-ngl 5 -ts 5,0 -ot exps=CUDA1", "layer 0 on CUDA1, and the layer is on another"),
            ("num_gpu 5", "divides layers among several GPUs"),
            ("-ngl 5 -ts 1e400000000,1", "'1e400000000' is not a number"),
            ("-ngl 1.5", "'1.5' is not a whole number"),
            ("vllm serve x -pp 1000000000", "1000000000 stages, and 2 GPUs"),
            ("-ngl -5", "-ngl must be 0 or more"),
            ("num_gpu -5", "num_gpu must be 0 or more"),
            ("-ngl 5 -ts 1,2,3", "-ts has 3 shares, and there are 2 GPUs"),
            ("-ngl 5 -ts 3,-1", "-ts has a share below 0"),
            ("-ngl 5 -ncmoe -1", "-ncmoe must be 0 or more"),
            ("-ngl 5 --device CUDA0,CUDA0", "'CUDA0,CUDA0' names a GPU twice"),
            ("CUDA_VISIBLE_DEVICES=1,1 vllm serve x -pp 2", "'1,1' names a GPU twice"),
            ("vllm serve x -pp 0", "-pp must be 1 or more"),
            ("--pipeline-model-parallel-layout Et*99999999999L", "repeats 't' 99999999999 times"),
            ("-ngl 5 -ot '(=CPU'", "is not a pattern"),
            ("-ngl 5 -sm row", "tensor splits need FLOPs or bytes moved"),
            ("VLLM_PP_LAYER_PARTITION=1,2", "the stages have 1, 2 layers, and the model has 4"),
            ("VLLM_PP_LAYER_PARTITION=1,2,1", "3 stages, and 2 GPUs"),
            ("vllm serve x -tp 2", "tensor splits need FLOPs or bytes moved"),
            ("-gs 1,1", "less than the model takes"),
            ('--pipeline-model-parallel-layout "t*4"', "not a sequence of E, t"),
            ("nowhere.json", "nowhere.json: No such file"),
        ],
    ),
    Refusals(
        "",
        map_file,
        [
            ("{}", "map.json': …places no module"),
            ("[]", "map.json': …places no module"),
            ('[["embed"], ["embed", "layers.0"]]', "map.json': …two parts name 'embed'"),
            (MAP_OF_BACK, "map.json': …order of layers"),
            ("[3]", "map.json': …neither a map of modules"),
            ('{"": 9}', "map.json': …no GPU '9' among the 2"),
            ("{", "map.json': …is not valid JSON"),
        ],
    ),
    Refusals(
        "export ",
        lambda _, kind, model, *home: export_plan(kind, model, Plan.on(home), Makespan()),
        [
            ("llamacpp", home_model(), 1, 0, 1, 1, 0, 1, "llamacpp: …this order of layers"),
            ("llamacpp", home_model(), 1, 1, 1, 0, 0, 1, "llamacpp: …this order of layers"),
            ("llamacpp", home_model(), *[0] * 6, "the layers on the host are not the first ones"),
            ("exllama", home_model(), 1, 1, *[0] * 4, "exllama: …'host', a CPU, but the ranks of"),
            ("ollama", home_model(gpus=2), 2, 0, 0, 1, 1, 1, "divides layers among several GPUs"),
            *(
                # attention of layer 1 on another GPU than its experts
                (kind, home_model(experts=True, gpus=2), *[0] * 4, *[1] * 6, "'layers.1' …add --g")
                for kind in ("device_map", "megatron", "pipelining")
            ),
            ("ollama", home_model(experts=True), 1, 0, 1, *[0] * 7, "has experts on other devices"),
        ],
    ),
]

# ---------------------------------------------------------------------------------- costs, options


def product(dtype: str = "bfloat16") -> Op:
    kernel = MatrixProduct(m=1, n=4096, k=4096, dtype=dtype)
    return Op(name="a", kind="mm", flops=kernel.flops, bytes_moved=2 * 4096**2, kernel=kernel)


SLOW = ModelledOn({"gpu": Rates(10**12, 10**11)}, (1,))
LIGHT = Op(name="b", kind="add", bytes_moved=2_680_000)


def costed(kind: str, op: Op | None = None, **rates: int) -> Graph:
    spec = catalogue()[kind].model_copy(update=rates)
    kinds = {kind: spec} if rates else {}
    cluster = Cluster(name="c", devices=(Device(name="d", kind=kind),), kinds=kinds)
    return cost_graph(Graph(name="g", ops=(op or product(),)), cluster, costs="measured")


def roofline(*names: str, **share: int) -> Graph:
    heavy = Graph(name="g", ops=ops(*names, time_ns={}, flops=2**62))
    return cost_graph(heavy, load_cluster("Xeon-5220"), **share)


COSTS = [
    Refusals(
        "",
        called,
        [
            (lambda: costed("H100-80GB", bandwidth_bytes_per_s=10**12), "not for H100-80GB at"),
            (costed, "T4", "measured costs exist only for …H100…, not for T4 at these"),
            (costed, "H100-80GB", LIGHT, "no op names its kernel"),
            (costed, "H100-80GB", product("float32"), "no table covers …float32; …--dtype"),
            (
                # each takes 2**62 / 1267.2 ns
                roofline,
                *(f"o{i}" for i in range(3000)),
                "g: …sum of the times…above 2**62",
            ),
            (lambda: roofline("a", compute_percent=0), "at least 1"),
            (chain_with_modes, "llama-8b-train", SLOW, {"seq": 8}, "no size 'seq'; …batch, tokens"),
            (
                cluster_rates,
                Cluster(name="own", devices=(Device(name="a", kind="x"),)),
                "--devices",
            ),
        ],
    ),
    Refusals(
        "there are no costs ",
        lambda _, costs: with_costs(Graph(name="g", ops=(product(),)), costs),
        [
            (c, f"{c!r}")
            for c in ("mesured", "measured:", "measured:llama.cpp", "roofline:vllm", "")
        ],
    ),
    Refusals(
        "",
        lambda _, node: count_flops(node),
        [
            (
                Node("Einsum", [(2, 3, 4), (3, 4)], [(2, 4)], {"equation": b"ij,jk->ik"}),
                "Einsum 'ij,jk->ik' are not known",
            ),
            (Node("Conv", [(1, 2, 3, 3), None], [(1, 2, 3, 3)], {}), "input 1 has no shape"),
        ],
        ValueError,
    ),
    Refusals(
        "",
        lambda _, text: weight_format(text),
        [
            ("expert=q4_0", "'expert' is not one of experts, embedding, head, rest"),
            ("experts=", "--weights '' is not a format"),
            ("experts=q4_0,int8", "'int8' is not one of experts"),
            *((text, f"--weights '{text}' is not a format") for text in ("q9_9", "0", "65", "nan")),
        ],
    ),
    Refusals(
        "its quantization_config ",
        lambda _, raw: configured_format(raw),
        [
            (None, ""),
            ({"quant_method": "vptq"}, ""),
            ({"quant_method": "compressed-tensors", "config_groups": {"g": 4}}, ""),
            ({"quant_method": "gptq", "modules_to_not_convert": ["re:("]}, ""),
        ],
    ),
    Refusals(
        "",
        lambda _, options: TraceOptions(**options),
        [
            ({"batch": 0}, "--batch must be from 1 to 10000000 (got 0)"),
            ({"dtype": "int4"}, "--dtype 'int4' is not one of float32, float16, bfloat16, float64"),
            ({"decode": True}, "--decode reads a cache; state its tokens"),
            ({"decode": True, "kv_tokens": 9, "seq": 4}, "--seq, --decode and --prefill choose"),
            ({"kv_dtype": "f16", "kv_tokens": 8, "train": True}, "--context is for inference"),
            ({"kv_dtype": "q8_0"}, "--kv-dtype needs a cache; state its tokens"),
            ({"kv_dtype": "q9", "kv_tokens": 8}, "--kv-dtype 'q9' is not one of f32, "),
        ],
    ),
    Refusals(
        "",
        called,
        [
            (build_model, "hf:gtp2", TraceOptions(), "no model 'gtp2'; did you mean 'gpt2'"),
            (build_model, "hf:none.json", TraceOptions(), "none.json: is not a local file"),
            (build_model, "py:mine:build", TraceOptions(seq=3), "py:mine:build: …--seq"),
            (profile_model, "hf:gpt2", TraceOptions(train=True), "not measured; add --optimizer"),
        ],
    ),
]

# --------------------------------------------------------------------------- corpus and transforms

ROWS = (Op(name=n, module=m, flops=1) for n, m in (("a", "h.0"), ("b", "h.1"), ("c", "h.0")))
CROSSED = Graph(
    name="net", ops=tuple(ROWS), edges=[Edge(producer=a, consumer=b) for a, b in ("ab", "bc")]
)


def cut(cuts: dict[int, Cut], size: int = 3, colocation: str | None = None) -> object:
    """Ops a and b, of `size` samples, split."""
    fields = {"splittable_axes": ("batch",), "axis_sizes": {"batch": size}}
    both = ops("a", "b", colocation=colocation, **fields)
    return split_ops(draw.instance_of("net", both, (), draw.devices(["gpu"])), cuts)


def piece(d: int, t: int, mode: str) -> object:
    return one_pipeline(layer_row(), HybridPipeline(), (d, t), mode)


TRANSFORMS = [
    Refusals(
        "",
        lambda _, family, params: generate(family, params),
        [
            ("cubic", {}, "there is no family 'cubic'; choose from layered, "),
            ("layered", {"opps": 3}, "parameters of layered: opps: unknown field"),
            ("layered", {"density": "nan"}, "parameters of layered: density"),
            ("layered", {"kinds": {}}, "parameters of layered: kinds: must not be empty"),
            ("blocks", {"blocks": 10**6, "branches": 10**6}, "blocks: more than 10000000 ops"),
        ],
    ),
    Refusals(
        "",
        lambda _, name, params, semantics=None: coarsen(example(), name, params, semantics),
        [
            ("melt", {}, "there is no transform 'melt'; choose from moirai-fusion, "),
            ("pesto-merge", {"ops": 0}, "parameters of pesto-merge: ops: "),
            ("pesto-merge", {"reach": 3}, "parameters of pesto-merge: reach: unknown field"),
            ("celeritas-fusion", {"memory_share": "x"}, "of celeritas-fusion: memory_share"),
            ("moirai-fusion", {"rules": "no/such.yaml"}, "no/such.yaml: No such file"),
            *(
                ("zero-time", {}, semantics, "no merge is known to be exact")
                for semantics in (
                    LatencySubgraphs(),
                    MaxLoad(plans="any", replicas=True),
                    MaxLoad(levels=2),
                )
            ),
        ],
    ),
    Refusals(
        "",
        called,
        [
            (load_corpus, "resnet51", "no graph 'resnet51'…did you mean 'resnet50'"),
            (find_transform, "moirai", "did you mean …'moirai-fusion'"),
            (mirror_training, generate("training"), "has backward ops already"),
            (piece, 3, 1, "keep", "3 x 1: replicas must divide the 8 microbatches"),
            (piece, 8, 2, "keep", "no more than the 8 devices"),
            (piece, 1, 1, "half", "op 'layer0' has no mode 'half' for 1 devices"),
            (piece, 1, 4, "keep", "op 'embedding' has no mode 'keep' for 4 devices"),
            (cut, {0: Cut("batch", 4)}, "'a': cannot be split into 4 parts along batch; …most 3"),
            (cut, {0: Cut("batch", 1)}, "'a': cannot be split into 1 parts…choose at least 2"),
            (lambda: cut({0: Cut("batch", 2)}, colocation="w"), "'b'…'w' must be split as a whole"),
            (replicate, example(), 2, 3, "a batch of 2 has no 3 shares"),
            (
                lambda: traced_layers(CROSSED, load_cluster("8xH100")),
                "'b' of h.1 feeds 'c' of h.0…state modes yourself",
            ),
            (
                lambda: traced_layers(Graph(name="net", ops=ops("a")), load_cluster("8xH100")),
                "hf:NAME --train",
            ),
            (with_granularity, on_pair("b"), "layer", "no op of i names its module"),
        ],
    ),
    Refusals(
        "",
        called,
        [
            # op1 -> op2 -> op4 with op1 and op4 as one
            (merge_groups, example(), np.array([0, 1, 2, 0]), "merged", "nobody", "form a cycle"),
            (merge_ops, example(), 0, "cannot merge to 0 ops"),
        ],
        ValueError,
    ),
]

TABLES = CLUSTERS + PROBLEMS + PLANS + FILES + LINES + COSTS + TRANSFORMS


@pytest.mark.parametrize(("table", "given", "sentence"), each_refusal(TABLES))
def test_a_refusal_is_one_line_that_names_the_place_and_the_remedy(
    table: Refusals, given: list[Any], sentence: str, tmp_path: Path
) -> None:
    is_refused(table, given, sentence, tmp_path)
