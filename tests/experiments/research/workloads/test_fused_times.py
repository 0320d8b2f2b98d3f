"""What one kernel saves over its ops: launches, and tensors that only it reads."""

import numpy as np
from draws import draw

from placegap.experiments.research.workloads.variants import in_half_precision, with_fused_times
from placegap.instances import Edge, Graph, Instance, Op
from placegap.instances.costing.catalogue import catalogue
from placegap.instances.costing.costing import roofline_ns
from placegap.instances.transforms.merge import merge_groups

MB = 10**6
T4 = catalogue()["T4"]


def chain(*extra: Edge) -> Instance:
    """Ops a, b and c, each of which reads 1 MB and writes 1 MB."""
    ops = (
        Op(name=n, time_ns={"T4": roofline_ns(9, 2 * MB, T4)}, flops=9, bytes_moved=2 * MB)
        for n in "abc"
    )
    edges = [Edge(producer=p, consumer=q, bytes=MB, tensor=p) for p, q in ("ab", "bc")]
    return draw.instance_of("abc", ops, [*edges, *extra], draw.devices(["T4"]))


def fused_time(instance: Instance, groups: list[int]) -> int:
    merge = merge_groups(instance, np.array(groups), "fused", "nobody")
    return with_fused_times(merge).graph.ops[0].time_ns["T4"]


def test_a_tensor_inside_is_neither_written_nor_read() -> None:
    # a and b move 4 MB, of which 2 are the tensor between them
    assert fused_time(chain(), [0, 0, 1]) == roofline_ns(18, 2 * MB, T4)
    assert fused_time(chain(), [0, 0, 0]) == roofline_ns(27, 2 * MB, T4)


def test_a_tensor_that_others_read_is_written_all_the_same() -> None:
    instance = chain(Edge(producer="a", consumer="c", bytes=MB, tensor="a"))
    assert fused_time(instance, [0, 0, 1]) == roofline_ns(18, 3 * MB, T4)


def test_an_op_alone_and_an_op_of_unknown_work_keep_their_times() -> None:
    drawn = chain()
    assert fused_time(drawn, [0, 1, 2]) == drawn.graph.ops[0].time_ns["T4"]
    ops = tuple(op.model_copy(update={"flops": None}) for op in drawn.graph.ops)
    bare = drawn.with_graph(drawn.graph.model_copy(update={"ops": ops}))
    assert fused_time(bare, [0, 0, 1]) == 2 * drawn.graph.ops[0].time_ns["T4"]


def test_half_precision_halves_every_size_and_rounds_up() -> None:
    op = Op(name="a", resident_bytes=5, parameter_bytes=4, bytes_moved=9, state_bytes=3)
    half = in_half_precision(Graph(name="one", ops=(op,))).ops[0]
    assert (half.resident_bytes, half.parameter_bytes, half.bytes_moved, half.state_bytes) == (
        3,
        2,
        5,
        2,
    )
    assert half.dtype == "float16"
