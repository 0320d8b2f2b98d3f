"""The format of a model file is told by its content, not by its name."""

import gzip
import json
from pathlib import Path

import pytest
from doubles.bad_files import good_dnn, good_document, good_piper, good_rows, workbook

from placegap.instances.importers.reader import load_model


@pytest.mark.parametrize(
    ("file", "content", "objective"),
    [
        ("own.dat", json.dumps(good_document()).encode(), None),
        ("own.json", b"\xef\xbb\xbf  " + json.dumps(good_document()).encode(), None),
        ("own", gzip.compress(json.dumps(good_document()).encode()), None),
        ("foreign.json", json.dumps(good_dnn()).encode(), "max_load"),
        ("table.json", workbook(good_rows()), "makespan"),
    ],
)
def test_the_content_decides(
    tmp_path: Path, file: str, content: bytes, objective: str | None
) -> None:
    (tmp_path / file).write_bytes(content)
    document = load_model(tmp_path / file)
    assert document.instance().num_ops >= 3
    assert (document.semantics.objective if document.semantics else None) == objective


def test_the_time_unit_reaches_files_that_do_not_state_theirs(tmp_path: Path) -> None:
    (tmp_path / "dnn.json").write_text(json.dumps(good_dnn()))
    (tmp_path / "moirai.xlsx").write_bytes(workbook(good_rows()))
    (tmp_path / "piper.json").write_text(json.dumps(good_piper()))
    assert load_model(tmp_path / "piper.json", "ms").graph.ops[0].time_ns["accelerator"] == 250_000
    assert load_model(tmp_path / "dnn.json", "us").graph.ops[0].time_ns["cpu"] == 2_500
    assert load_model(tmp_path / "moirai.xlsx", "us").graph.ops[0].time_ns["gpu0"] == 5_000
