"""``--memory peak``: place keeps it, its table shows it, verify judges it, a study tabulates it."""

import json
from pathlib import Path

import pytest
from draws import draw

from placegap.experiments.cli import main
from placegap.instances import Op
from placegap.instances.files.document import Document, save_document

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Three ops whose resident bytes, 30 in all, fit on no device of 25; their peak does."""
    ops = tuple(
        Op(name=name, time_ns={"x": 1}, resident_bytes=10, parameter_bytes=4) for name in "abc"
    )
    net = draw.row(ops, draw.devices("x", lambda k: 25), bytes=6)
    save_document(Document.of(net), tmp_path / "net.json")
    return str(tmp_path / "net.json")


def test_a_plan_that_fits_at_its_peak_is_found_shown_and_verified(
    model: str, tmp_path: Path, capsys: Capture
) -> None:
    plan = str(tmp_path / "plan.json")
    assert main(["place", model, "--method", "heft", "--memory", "sum"]) == 1
    # 3 times 10 bytes of 25; every plan holds 3 times 4 of state, and 12 when b runs
    said = " ".join(capsys.readouterr().out.split())
    assert "all 3 ops need 30 B on d0: 25 B together, 5 B per device short" in said
    assert "--memory peak (24 B in all, at least), or one more device like d0 (25 B)" in said
    assert main(["place", model, "--method", "heft", "--memory", "peak", "-o", plan]) == 0
    # three times 4 of state, and b's input and output of 6
    out = capsys.readouterr().out
    assert "peak memory" in out
    assert "24 B of 25 B" in out
    assert json.loads(Path(plan).read_text())["semantics"]["memory"] == "peak"
    assert main(["verify", model, plan]) == 0
    capsys.readouterr()
    assert main(["verify", model, plan, "--memory", "sum"]) == 1
    assert "holds 30 B, 5 B more than its 25 B" in capsys.readouterr().out
