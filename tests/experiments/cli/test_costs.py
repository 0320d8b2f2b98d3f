"""`costs` prints what each kind of op takes on each card, and how much of it is measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from placegap.experiments.cli import main
from placegap.instances import Document, Graph, Op, save_document
from placegap.instances.costing import kernel_tables
from placegap.instances.problem import MatrixProduct, OpKernel

Capture = pytest.CaptureFixture[str]

SIZE = 2 * 4096**2
PRODUCT = MatrixProduct(m=1, n=4096, k=4096, dtype="bfloat16")


class Invented:
    """Tables in which every kernel takes 20 us."""

    source = "invented 1"

    def time_ns(self, kernel: OpKernel) -> float | None:
        return 20_000.0


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two products and an addition; H100 has tables."""

    def find(kind: str, framework: str | None = None) -> Any:
        return Invented() if kind == "H100-80GB" else None

    monkeypatch.setattr(kernel_tables, "kernel_tables", find)
    products = [
        Op(name=f"p{i}", kind="mm", flops=SIZE, bytes_moved=SIZE, kernel=PRODUCT) for i in range(2)
    ]
    add = Op(name="a", kind="add", bytes_moved=2_680_000)
    save_document(
        Document(name="g", graph=Graph(name="g", ops=(*products, add))), tmp_path / "g.json"
    )
    return str(tmp_path / "g.json")


def test_each_kind_of_op_has_its_share_and_its_time_over_the_roofline(
    model: str, capsys: Capture
) -> None:
    # 40 us of products, 1 us of 0.8 x 3.35 TB/s and 3 us of the addition; rooflines: 15.017 us and
    # 5.801 us with a launch
    assert main(["costs", model, "--cluster", "H100", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    product, add = said["rows"]
    assert (product["op"], product["ops"], product["time_ns"]) == ("mm", 2, 40_000)
    assert (product["is_measured"], add["is_measured"]) == (True, False)
    assert add["share"] == pytest.approx(4 / 44)
    assert product["times_roofline"] == pytest.approx(40 / 30.034, rel=1e-3)
    assert said["costs"] == "measured for 91 % of the time on H100-80GB (invented 1)"


def test_cards_have_a_table_each(model: str, capsys: Capture) -> None:
    assert main(["costs", model, "--cluster", "H100+T4, pcie3"]) == 0
    said = capsys.readouterr()
    for text in ("H100-80GB", "T4", "measured", "modelled", "90.9%", "1.33", "none on T4"):
        assert text in said.out
    assert "on T4 is modelled" not in said.err  # the table says it


def test_the_answer_of_place_says_how_much_is_measured(model: str, capsys: Capture) -> None:
    words = ["place", model, "--cluster", "H100+T4, pcie3", "--method", "heft"]
    assert main([*words, "--costs", "measured"]) == 0
    said = capsys.readouterr()
    assert "costs   measured for 91 % of the time on H100-80GB (invented 1), none on T4" in said.out
    assert "on T4 is modelled" in said.err
