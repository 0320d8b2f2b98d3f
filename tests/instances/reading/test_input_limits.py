"""Input above a limit is refused before it is read or built, and the limit is named."""

import gzip
import io
import os
import re
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from doubles.bad_files import good_document, good_rows, workbook

from placegap.instances import InputError
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import load_document, write_json
from placegap.instances.importers.measurements import load_ops
from placegap.instances.importers.reader import load_model
from placegap.instances.reading.errors import LONGEST_LINE, shorten
from placegap.instances.reading.input_files import read_content
from placegap.instances.reading.yaml_file import read_yaml


def refusal(read: Callable[[Path], object], path: Path) -> str:
    """The line that refuses a file, whose memory stays small."""
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            read(path)
        # the limit of text files and some room
        assert tracemalloc.get_traced_memory()[1] < 250_000_000
    finally:
        tracemalloc.stop()
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    return line


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def far_cell(folder: Path, reference: str, dimension: bool) -> Path:
    """A workbook of some kilobytes whose last cell lies far off."""
    whole, out = zipfile.ZipFile(io.BytesIO(workbook(good_rows()))), io.BytesIO()
    row = re.sub("[A-Z]", "", reference).encode()
    cell = b'<row r="%s"><c r="%s"><v>1</v></c></row></sheetData>' % (row, reference.encode())
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        for name in whole.namelist():
            data = whole.read(name)
            if name.endswith("sheet1.xml"):
                data = data.replace(b"</sheetData>", cell)
                stated = b'<dimension ref="A1:%s"/>' % reference.encode() if dimension else b""
                data = re.sub(rb"<dimension[^>]*/>", stated, data)
            target.writestr(name, data)
    return written(folder / "far.xlsx", out.getvalue())


def test_a_gzip_file_is_unzipped_up_to_the_limit(tmp_path: Path) -> None:
    # zeros in 440 kB; what a file may unfold to is 100 MB
    bomb = gzip.compress(bytes(100_000_001), compresslevel=1)
    line = refusal(load_model, written(tmp_path / "bomb.json.gz", bomb))
    assert "100000000; PLACEGAP_MAX_INPUT_BYTES" in line


def test_members_of_a_gzip_file_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "two.gz", gzip.compress(b"a" * 60) + gzip.compress(b"b" * 60))
    assert read_content(path) == b"a" * 60 + b"b" * 60
    cut = written(tmp_path / "cut.gz", path.read_bytes()[:-1])
    assert "gzip" in refusal(read_content, cut)
    monkeypatch.setenv("PLACEGAP_MAX_INPUT_BYTES", "119")
    assert "limit of 119" in refusal(read_content, path)
    monkeypatch.setenv("PLACEGAP_MAX_INPUT_BYTES", "120")
    assert len(read_content(path)) == 120


def test_the_variable_raises_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.json"
    write_json(good_document(), path)
    monkeypatch.setenv("PLACEGAP_MAX_INPUT_BYTES", "100")
    with pytest.raises(InputError, match="100; PLACEGAP_MAX_INPUT_BY"):
        load_document(path)
    monkeypatch.setenv("PLACEGAP_MAX_INPUT_BYTES", "100000")
    assert load_document(path).name == "good"
    monkeypatch.setenv("PLACEGAP_MAX_INPUT_BYTES", "much")
    with pytest.raises(InputError, match=r"^PLACEGAP_MAX_INPUT_BYTES"):
        load_document(path)


def test_what_is_no_regular_file_is_refused_unread(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    zero = tmp_path / "zero.yaml"
    zero.symlink_to("/dev/zero")
    for read in (load_model, load_cluster, load_document, lambda path: load_ops([path])):
        assert "is a pipe" in refusal(read, pipe)  # type: ignore[arg-type]
    assert "is a device" in refusal(load_cluster, zero)
    assert "is a device" in refusal(load_model, Path("/dev/zero"))
    assert "is a directory" in refusal(load_model, tmp_path)


@pytest.mark.parametrize(("reference", "dimension"), [("XFD1048576", True), ("A1048576", False)])
def test_a_cell_far_off_is_refused(
    tmp_path: Path, reference: str, dimension: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACEGAP_MAX_CELLS", "20000")  # the default takes a second
    path = far_cell(tmp_path, reference, dimension)
    assert path.stat().st_size < 10_000
    assert "20000; PLACEGAP_MAX_CELLS=" in refusal(load_model, path)


def test_a_workbook_that_unfolds_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("xl/sheet1.xml", bytes(30_000_000))
    line = refusal(load_model, written(tmp_path / "bomb.xlsx", out.getvalue()))
    assert "unzipped, has 30000000 bytes" in line


def test_csv_of_too_many_cells_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACEGAP_MAX_CELLS", "20000")
    path = written(tmp_path / "many.csv", b"op,device,batch\n" + b"a,b,1\n" * 7_000)
    line = refusal(lambda path: load_ops([path]), path)
    assert "20000; PLACEGAP_MAX_CELLS=" in line


def test_json_of_too_many_values_is_refused_unparsed(tmp_path: Path) -> None:
    # 15 MB of empty objects would take 330 MB
    path = written(tmp_path / "many.json", b"[" + b"{}," * 5_000_000 + b"{}]")
    assert "10000002 values" in refusal(load_model, path)


TEN = [", ".join([f"*a{k}"] * 10) for k in range(9)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # 10 ** 9 values from nine lines
        (
            "a0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [{TEN[k - 1]}]\n" for k in range(1, 10)),
            "10000000; PLACEGAP_MAX_VALUES",
        ),
        (
            "a0: &a0 {x: 1}\n"
            + "".join(f"a{k}: &a{k} {{<<: [{TEN[k - 1]}]}}\n" for k in range(1, 9)),
            "10000000; PLACEGAP_MAX_VALUES",
        ),
        ("a: &a [*a]\n", "an alias of itself"),
        ("a: 1" + ":59" * 9_000, "a number of 27001 characters"),
        ("x" * 400_000, "300000; PLACEGAP_MAX_YAML_BYTES"),
    ],
)
def test_yaml_that_unfolds_or_grows_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in refusal(read_yaml, written(tmp_path / "a.yaml", text.encode()))


def test_an_onnx_file_of_too_many_nodes_is_refused_unparsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx", reason="needs the onnx extra")
    monkeypatch.setenv("PLACEGAP_MAX_ONNX_NODES", "10000")
    # field 7, the graph, of 20,002 bytes: empty messages of field 1, a node each
    nodes = b"\x0a\x00" * 10_001
    length = bytes([len(nodes) & 127 | 128, len(nodes) >> 7 & 127 | 128, len(nodes) >> 14])
    path = written(tmp_path / "many.onnx", b"\x08\x07\x3a" + length + nodes)
    assert "10000; PLACEGAP_MAX_ONNX_NODES=" in refusal(load_model, path)


def test_a_cluster_of_too_many_devices_is_refused_before_they_are_made(tmp_path: Path) -> None:
    rows = "".join(f"- {{name: g{k}x, kind: T4, count: 1024}}\n" for k in range(100))
    path = written(tmp_path / "c.yaml", f"name: c\ndevices:\n{rows}".encode())
    assert "102400 devices" in refusal(load_cluster, path)


def test_integers_of_thousands_of_digits_are_refused_without_being_written(tmp_path: Path) -> None:
    raw = b'{"format": "placegap", "version": %s, "name": "x"}' % (b"9" * 4300)
    line = refusal(load_document, written(tmp_path / "digits.json", raw))
    assert "version: " in line
    assert "(got an integer of hundreds of digits)" in line


def test_messages_have_at_most_300_characters_however_long_a_name_is(tmp_path: Path) -> None:
    name = "two words " * 90 + "n" * 999_999
    document = good_document()
    document["graph"]["ops"][1]["name"] = name
    document["graph"]["ops"][1]["time_ns"] = {"gpu": -1, name: -1}
    document["graph"]["edges"][0][name] = name
    path = tmp_path / "own.json"
    write_json(document, path)
    line = refusal(load_model, path)
    assert len(line) <= LONGEST_LINE
    assert "graph.ops[1]" in line
    assert len(shorten(f"placegap: {name}", 300)) <= 300
