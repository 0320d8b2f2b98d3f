"""Measured costs of ops: what a table has is looked up, and all else is modelled."""

from __future__ import annotations

from typing import Any

import pytest
from draws.draw import cluster_of as on

from placegap.instances import Edge, Graph, InputError, Instance, Op, cost_graph
from placegap.instances.costing import kernel_tables
from placegap.instances.costing.catalogue import catalogue
from placegap.instances.costing.costing import MEASURED_SHARE, MOSTLY_MODELLED, with_costs
from placegap.instances.problem import ExpertsKernel, MatrixProduct, OpKernel

PRODUCT = MatrixProduct(m=1, n=4096, k=4096, dtype="bfloat16")
EXPERTS = ExpertsKernel(tokens=4, hidden=8, inner=16, chosen=2, experts=4, dtype="bfloat16")


class Invented:
    """Tables of two kernels: the product takes 20 us, the experts 30 us."""

    source = "invented 1"

    def time_ns(self, kernel: OpKernel) -> float | None:
        return {PRODUCT: 20_000.4, EXPERTS: 30_000.0}.get(kernel)


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """H100 and A100 have tables; the list is of the frameworks that are asked for."""
    asked: list[str | None] = []

    def find(kind: str, framework: str | None = None) -> Any:
        asked.append(framework)
        return Invented() if kind in ("H100-80GB", "A100-80GB") else None

    monkeypatch.setattr(kernel_tables, "kernel_tables", find)
    return asked


def product(name: str = "a", **more: Any) -> Op:
    return Op(
        name=name, kind="mm", flops=2 * 4096**2, bytes_moved=2 * 4096**2, kernel=PRODUCT, **more
    )


ADD = Op(name="b", kind="add", bytes_moved=2_680_000)
"""0.8 of an H100's 3.35 TB/s move it in 1 us."""


def test_a_product_takes_its_measured_time_and_the_rest_its_bytes_and_3_us() -> None:
    found = cost_graph(Graph(name="g", ops=(product(), ADD)), on("H100-80GB"), costs="measured")
    assert [op.time_ns for op in found.ops] == [{"H100-80GB": 20_000}, {"H100-80GB": 4_000}]


def test_the_answer_says_for_how_much_of_the_time_costs_are_measured() -> None:
    # 20 us of 24 us are 83 %; a T4 has no tables
    graph = Graph(name="g", ops=(product(), ADD))
    noted = cost_graph(graph, on("H100-80GB", "T4"), costs="measured").provenance.parameters
    assert noted[MEASURED_SHARE] == (
        "measured for 83 % of the time on H100-80GB (invented 1), none on T4"
    )
    assert noted[MOSTLY_MODELLED] == "T4"


def test_a_card_without_tables_takes_its_calibrated_time() -> None:
    graph = Graph(name="g", ops=(product(), ADD))
    calibrated = cost_graph(graph, on("T4"), costs="calibrated")
    measured = cost_graph(graph, on("H100-80GB", "T4"), costs="measured")
    for op, other in zip(calibrated.ops, measured.ops, strict=True):
        assert op.time_ns["T4"] == other.time_ns["T4"]


def test_a_product_of_experts_takes_its_share_of_their_flops() -> None:
    # three matrices of 8 x 16 for 4 tokens and 2 experts each: 2 * 3 * 4 * 2 * 8 * 16 FLOPs, of
    # which the matrix that leads back has a third
    third = Op(name="a", kind="_grouped_mm", flops=2 * 4 * 2 * 8 * 16, kernel=EXPERTS)
    found = cost_graph(Graph(name="g", ops=(third,)), on("A100-80GB"), costs="measured")
    assert found.ops[0].time_ns == {"A100-80GB": 10_000}


def test_a_kernel_that_no_table_has_is_modelled() -> None:
    other = PRODUCT.model_copy(update={"n": 4097})
    op = product().model_copy(update={"kernel": other})
    graph = Graph(name="g", ops=(op, product("c")))
    found = cost_graph(graph, on("H100-80GB"), costs="measured")
    # 33,554,432 bytes at 0.8 of 3.35 TB/s take 12.520 us, rounded up, and 3 us
    assert [op.time_ns["H100-80GB"] for op in found.ops] == [15_521, 20_000]


def test_times_that_ops_bring_stay() -> None:
    graph = Graph(name="g", ops=(product(time_ns={"H100-80GB": 7}), product("c")))
    found = cost_graph(graph, on("H100-80GB"), costs="measured")
    assert [op.time_ns["H100-80GB"] for op in found.ops] == [7, 20_000]


def test_the_share_is_said_of_cards_that_get_times_and_what_was_said_before_stays() -> None:
    said = cost_graph(Graph(name="g", ops=(product(),)), on("H100-80GB"), costs="measured")
    again = cost_graph(said, on("H100-80GB", "T4"), costs="measured")
    before, after = (each.provenance.parameters[MEASURED_SHARE] for each in (said, again))
    assert after == f"{before}; measured for none on T4"
    assert cost_graph(again, on("H100-80GB", "T4"), costs="measured").ops == again.ops


def test_ops_that_were_costed_on_one_card_are_the_same_kernels_on_another() -> None:
    chain = [Edge(producer=a, consumer=b, bytes=8) for a, b in ("ab", "bc")]
    light = [Op(name=name, kind="add", bytes_moved=3_000_000) for name in "abc"]
    graph = Graph(name="g", ops=tuple(light), edges=tuple(chain))
    whole = cost_graph(graph, on("H100-80GB", "T4"), costs="calibrated")
    again = cost_graph(
        cost_graph(graph, on("T4"), costs="calibrated"), on("H100-80GB", "T4"), costs="calibrated"
    )
    assert again.ops == whole.ops
    # times that a model brings are of ops as they are
    own = tuple(op.model_copy(update={"time_ns": {"T4": 7}}) for op in light)
    apart = cost_graph(graph.model_copy(update={"ops": own}), on("H100-80GB"), costs="calibrated")
    assert {op.colocation for op in apart.ops} == {None}


def test_a_model_that_brings_all_times_says_that_none_is_looked_up() -> None:
    graph = cost_graph(Graph(name="g", ops=(product(),)), on("H100-80GB"), costs="calibrated")
    found = cost_graph(graph, on("H100-80GB"), costs="measured")
    assert found.ops == graph.ops
    assert "none is looked up" in str(found.provenance.parameters[MEASURED_SHARE])


def test_a_card_with_rates_of_its_own_has_no_table() -> None:
    spec = catalogue()["H100-80GB"].model_copy(update={"bandwidth_bytes_per_s": 10**12})
    own = on("H100-80GB").model_copy(update={"kinds": {"H100-80GB": spec}})
    with pytest.raises(InputError, match="not for H100-80GB at these rates"):
        cost_graph(Graph(name="g", ops=(product(),)), own, costs="measured")


def test_a_framework_is_asked_for_by_name(tables: list[str | None]) -> None:
    graph = Graph(name="g", ops=(product(),))
    cost_graph(graph, on("H100-80GB"), costs="measured:trtllm")
    cost_graph(graph, on("H100-80GB"), costs="measured")
    assert tables == ["trtllm", None]


@pytest.mark.parametrize(
    "costs", ["mesured", "measured:", "measured:llama.cpp", "roofline:vllm", ""]
)
def test_other_words_for_costs_are_refused(costs: str) -> None:
    with pytest.raises(InputError, match="there are no costs"):
        with_costs(Graph(name="g", ops=(product(),)), costs)


def test_cards_of_which_none_has_a_table_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"measured costs exist only for .*H100.*, not for T4 at these"
    ):
        cost_graph(Graph(name="g", ops=(product(),)), on("T4"), costs="measured")


def test_a_graph_that_states_no_kernel_is_refused() -> None:
    with pytest.raises(InputError, match="no op names its kernel"):
        cost_graph(Graph(name="g", ops=(ADD,)), on("H100-80GB"), costs="measured")


def test_a_graph_of_which_no_table_has_a_kernel_is_refused() -> None:
    single = PRODUCT.model_copy(update={"dtype": "float32"})
    op = product().model_copy(update={"kernel": single})
    with pytest.raises(
        InputError, match=r"no table covers its kernels, which compute in float32; .*--dtype"
    ):
        cost_graph(Graph(name="g", ops=(op,)), on("H100-80GB"), costs="measured")


def test_the_content_hash_is_that_of_the_times_and_not_of_the_kernels() -> None:
    ops = (product(time_ns={"H100-80GB": 7}), product("c", time_ns={"H100-80GB": 8}))
    edges = (Edge(producer="a", consumer="c", bytes=8),)
    bare = tuple(op.model_copy(update={"kernel": None}) for op in ops)
    graphs = [Graph(name="g", ops=each, edges=edges) for each in (ops, bare)]
    one, other = (Instance(name="i", graph=each, cluster=on("H100-80GB")) for each in graphs)
    assert one.content_hash == other.content_hash
