"""``placegap split``: a finer instance and a map, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from draws.splittable import splittable_diamond

from placegap.experiments.cli import main
from placegap.instances import Document, load_document, save_document
from placegap.instances.transforms.op_splitting import Cut, split_ops

Capture = pytest.CaptureFixture[str]
HALVES = ["--param", "min_share=0.4"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The diamond, whose op 2 takes 20 of 43 ns, in a file."""
    monkeypatch.chdir(tmp_path)
    save_document(Document.of(splittable_diamond()), "model.json")
    return "model.json"


def test_the_finer_instance_and_the_map_are_written(model: str, capsys: Capture) -> None:
    words = ["split", model, *HALVES, "-o", "finer.json.gz", "--map", "map.json"]
    assert main(words) == 0
    expected = split_ops(splittable_diamond(), {1: Cut("batch", 2)}).fine
    assert load_document("finer.json.gz").instance().content_hash == expected.content_hash
    whole = {name: name for name in ("op1", "op3", "op4")}
    parts = dict.fromkeys(("op2/1of2", "op2/2of2", "op2/gather"), "op2")
    assert json.loads(Path("map.json").read_text()) == {**whole, **parts}
    out = capsys.readouterr().out
    assert "1 op split into 2 parts" in out
    assert "another instance: its plans and bounds are none of the model as it is" in out
    assert main([*words[:4], "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["split_ops"], content["parts"]) == (1, 2)
    # two edges at op 2 become two into the parts, two into the gather and one out of it
    assert (content["before"]["ops"], content["after"]["ops"]) == (4, 6)
    assert (content["before"]["edges"], content["after"]["edges"]) == (4, 7)
