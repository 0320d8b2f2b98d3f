"""Piper's inputs: what becomes of every field, and what is refused."""

from pathlib import Path
from typing import Any

from doubles.bad_files import good_piper
from draws.tiny import SHARED, needs_inputs

from placegap.instances import HybridPipeline, load_model
from placegap.instances.files.document import Document, load_document, save_document, write_json

INPUTS = SHARED / "instances" / "piper"
needs_piper = needs_inputs("piper", "it holds the inputs of github.com/msr-fiddle/piper")


def read(folder: Path, content: dict[str, Any], **options: Any) -> Document:
    write_json(content, folder / "input.json")
    return load_model(folder / "input.json", **options)


def test_every_field_has_its_place(tmp_path: Path) -> None:
    document = read(tmp_path, good_piper())
    first, second = document.graph.ops
    assert (first.name, second.name, second.kind) == ("embed#0", "block#1", "block")
    keep, again, wide = second.modes
    modes = [(mode.name, mode.tensor) for mode in second.modes]
    assert modes == [("keep", 1), ("again", 1), ("keep", 2)]
    # 0.25 s; twice the weights; 6.5 bytes are rounded up
    assert keep.time_ns == {"accelerator": 250_000_000}
    assert (keep.parameter_bytes, keep.state_bytes, keep.held_bytes) == (20, 20, 7)
    assert (again.state_bytes, wide.enter_bytes) == (26, {"embed#0": 4})
    (edge,) = document.graph.edges
    assert (edge.producer, edge.consumer, edge.bytes) == ("embed#0", "block#1", 12)
    instance = document.instance()
    assert [device.memory_bytes for device in instance.cluster.devices] == [80] * 4
    assert instance.cluster.least_bandwidth_bytes_per_s == 1000
    assert document.semantics == HybridPipeline(microbatches=8, degrees="free")
    assert "3 sizes rounded up to whole bytes" in document.graph.provenance.changes[-1]
    # and modes are written and read back
    save_document(document, tmp_path / "own.json")
    assert load_document(tmp_path / "own.json").graph == document.graph


@needs_piper
def test_published_times_in_milliseconds_are_read_as_they_are_and_noted() -> None:
    noted = {
        name: "likely" in " ".join(load_model(INPUTS / f"{name}.json").graph.provenance.changes)
        for name in ("bert32a100", "resnet", "gnmt")
    }
    assert noted == {"bert32a100": False, "resnet": True, "gnmt": True}
