"""What ops hold at the peak of memory survives every transform, split and mirror."""

import pytest
from draws import draw

from placegap.instances import Cache, Graph, Instance, MaxLoad, Op
from placegap.instances.corpus.generate import mirror_training
from placegap.instances.transforms.op_splitting import Axis, Cut, split_ops
from placegap.instances.transforms.table import TRANSFORMS, coarsen

PARAMS: dict[str, dict[str, object]] = {"pesto-merge": {"ops": 2}, "celeritas-fusion": {"reach": 3}}
PEAK = MaxLoad(plans="any", memory="peak")


def net() -> Instance:
    """A chain of five ops that every transform shortens; two of them share weights."""
    fields: tuple[dict[str, object], ...] = (
        {"kind": "Conv", "parameter_bytes": 4, "shared_state": {"tied": 50}},
        {"kind": "BatchNormalization", "state_bytes": 7, "parameter_bytes": 1},
        {"kind": "Relu", "workspace_bytes": 9, "time_ns": {"gpu": 0}},
        {"kind": "MatMul", "state_bytes": 0, "parameter_bytes": 6, "colocation": "g"},
        {"kind": "MatMul", "shared_state": {"tied": 50, "bias": 2}, "colocation": "g"},
    )
    ops = tuple(
        Op(name=f"op{i}", dtype="float16", **{"time_ns": {"gpu": 3}, **own})  # type: ignore[arg-type]
        for i, own in enumerate(fields)
    )
    return draw.row(ops, draw.devices(["gpu"] * 2, lambda k: 500), bytes=5)


def state(op: Op) -> int:
    return op.parameter_bytes if op.state_bytes is None else op.state_bytes


@pytest.mark.parametrize("name", TRANSFORMS)
def test_merged_ops_hold_the_state_of_their_ops_and_shared_state_once(name: str) -> None:
    merge = coarsen(net(), name, PARAMS.get(name), MaxLoad(plans="any")).merge
    fine, coarse = merge.fine.graph.ops, merge.coarse.graph.ops
    assert len(coarse) < len(fine)
    for c, op in enumerate(coarse):
        inside = [fine[i] for i, at in enumerate(merge.op.tolist()) if at == c]
        assert state(op) == sum(map(state, inside))
        assert op.shared_state == {k: v for one in inside for k, v in one.shared_state.items()}
        assert op.workspace_bytes == max(one.workspace_bytes for one in inside)
        assert op.dtype == "float16"


@pytest.mark.parametrize("name", TRANSFORMS)
def test_no_transform_claims_to_keep_the_optimum_at_the_peak_of_memory(name: str) -> None:
    assert coarsen(net(), name, PARAMS.get(name), PEAK).claim == "neither"


@pytest.mark.parametrize("axis", ["batch", "in_channel"])
def test_parts_of_an_op_share_what_they_copy_and_divide_the_rest(axis: Axis) -> None:
    # in_channel divides parameters, and with them 50 bytes of state in 25 + 25
    parts = split_ops(net(), {0: Cut(axis, 2)}).fine.graph.ops[:3]
    shared = [list(op.shared_state.items()) for op in parts]
    if axis == "batch":
        assert shared == [[("tied", 50)], [("tied", 50)], []]
        assert [state(op) for op in parts] == [4, 4, 0]
    else:
        assert shared == [[(f"tied[{axis} 0:1 of 2]", 25)], [(f"tied[{axis} 1:2 of 2]", 25)], []]
        assert [state(op) for op in parts] == [2, 2, 0]
    whole = split_ops(net(), {1: Cut(axis, 2)}).fine.graph.ops[1:4]
    # of 7 stated bytes the parts have 3 and 4
    assert [op.state_bytes for op in whole] == ([7, 7, None] if axis == "batch" else [3, 4, None])
    assert {op.dtype for op in whole} == {"float16"}


def test_a_mirrored_op_reads_the_same_weights_and_its_update_holds_their_moments() -> None:
    ops = {op.name: op for op in mirror_training(net().graph).ops}
    assert ops["op0/backward"].shared_state == {"tied": 50}
    assert ops["op0/update"].shared_state == {"tied/moments": 100}
    assert ops["op0/update"].state_bytes == 8
    assert ops["op1/update"].state_bytes == 14
    assert {op.dtype for op in ops.values()} == {"float16"}


@pytest.mark.parametrize("axis", ["batch", "out_channel", "in_channel"])
@pytest.mark.parametrize("is_stated", [True, False])
def test_parts_share_a_cache_and_hold_for_any_context_what_the_op_held(
    axis: Axis, is_stated: bool
) -> None:
    # 30 bytes of weights, 10 of output, and 7 a token for 4 tokens: 68; parts have 3 and 4 a token
    attention = Op(
        name="attention",
        time_ns={"gpu": 3},
        resident_bytes=68,
        parameter_bytes=30,
        state_bytes=58 if is_stated else None,
        caches=(Cache(token_bytes=7, tokens=4),),
    )
    graph = Graph(name="one", ops=(attention,))
    one = net().model_copy(update={"graph": graph})
    parts = split_ops(one, {0: Cut(axis, 2)}).fine.graph.ops[:2]
    assert [[cache.token_bytes for cache in part.caches] for part in parts] == [[3], [4]]
    weights = [30, 30] if axis == "batch" else [15, 15]
    output = [10, 10] if axis == "in_channel" else [5, 5]
    for part, own, out, token in zip(parts, weights, output, (3, 4), strict=True):
        assert part.resident_bytes == own + out + 4 * token
        assert part.state_bytes == (own + 4 * token if is_stated else None)
        assert part.bytes_at(100) == own + out + 100 * token
