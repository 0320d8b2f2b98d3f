"""What rooflines cost: optima by each kind of costs, priced by measured kernels."""

from typing import Any

import pytest

from placegap.experiments.research.tables.measured import (
    SplitRow,
    instances,
    load_plan,
    placer_rows,
    split,
    summary,
)
from placegap.instances import Document, Edge, Graph, Op
from placegap.instances.costing import kernel_tables
from placegap.instances.costing.kernel_tables import SYSTEMS
from placegap.instances.problem import MatrixProduct, OpKernel
from placegap.solvers import METHODS

PRODUCT = MatrixProduct(m=1, n=4096, k=4096, dtype="bfloat16")


class Invented:
    """Tables of one product, which takes 1 ms or 3 ms."""

    source = "invented 1"

    def __init__(self, time_ns: float) -> None:
        self.product_ns = time_ns

    def time_ns(self, kernel: OpKernel) -> float | None:
        return self.product_ns


@pytest.fixture
def four_layers(monkeypatch: pytest.MonkeyPatch) -> Document:
    """Layers of one product, of 33.6 MB, on cards where it takes 1 ms (H100) and 3 ms (A100)."""
    found = {"H100-80GB": Invented(1_000_000), "A100-80GB": Invented(3_000_000)}

    def find(kind: str, framework: str | None = None) -> Any:
        return found[kind]

    monkeypatch.setattr(kernel_tables, "kernel_tables", find)
    size = 2 * 4096**2
    work: dict[str, Any] = {"flops": size, "bytes_moved": size, "dtype": "bfloat16"}
    ops = [
        Op(name=f"p{i}", kind="mm", module=f"layers.{i}", kernel=PRODUCT, **work) for i in range(4)
    ]
    edges = [Edge(producer=f"p{i}", consumer=f"p{i + 1}") for i in range(3)]
    return Document(name="g", graph=Graph(name="g", ops=tuple(ops), edges=tuple(edges)))


def test_the_optimum_by_rooflines_is_priced_by_measured_kernels(four_layers: Document) -> None:
    # rooflines: 33,554,432 bytes take 10.02 us of 3.35 TB/s and 16.46 us of 2.039, and a launch 5:
    # two layers each end after 42.9 us, three and one after 45.1. Measured, two on the A100 take
    # 6 ms, and three and one 3 ms each, besides a transfer's 5 us.
    of = instances(four_layers, "1x1xH100-80GB+1x1xA100-80GB, pcie5, infiniband")
    found = split(of, ("vllm-even",))
    assert found is not None
    assert found.value_ns == pytest.approx(3e6, rel=0.01)
    assert (found.layers["roofline"], found.layers["measured"]) == ((2, 2), (3, 1))
    assert found.losses["roofline"] == pytest.approx(1.0, abs=0.01)
    assert found.gaps["vllm-even", "measured"] == pytest.approx(1.0, abs=0.01)
    assert found.gaps["vllm-even", "roofline"] == pytest.approx(0.0)


def test_tables_have_medians_and_largest_losses_and_mean_gaps(four_layers: Document) -> None:
    rules = ("vllm-even", "llama-cpp", "exo")
    of = instances(four_layers, "1x1xH100-80GB+1x1xA100-80GB, pcie5, infiniband")
    found = split(of, rules)
    assert found is not None
    rows = [SplitRow("H100 + A100", "g", "decode", found)]
    assert [row[:3] for row in summary(rows)] == [
        ("g, decode", "1", "99.7 %, 99.7 %"),
        ("all", "1", "99.7 %, 99.7 %"),
    ]
    name, count, roofline, _, measured = next(placer_rows(rows, rules))
    assert (name, count, roofline, measured) == ("vllm-even", "1", "0.0 %", "99.7 %")


def test_a_model_that_fits_no_split_has_no_row(four_layers: Document) -> None:
    heavy = [
        op.model_copy(update={"parameter_bytes": 10**11, "resident_bytes": 10**11})
        for op in four_layers.graph.ops
    ]
    graph = four_layers.graph.model_copy(update={"ops": tuple(heavy)})
    document = Document(name="g", graph=graph)
    of = instances(document, "1x1xH100-80GB+1x1xA100-80GB, pcie5, infiniband")
    assert split(of, ()) is None


def test_the_study_names_kinds_with_tables_and_placers_that_there_are() -> None:
    entry = load_plan()
    assert {kind for pair in entry["pairs"] for kind in pair} <= SYSTEMS.keys()
    assert len(entry["pairs"]) >= 15
    assert set(entry["placers"]) <= set(METHODS)
