"""Measurement files: what is read, and one line with file, row and mend where it cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from placegap.instances import InputError
from placegap.instances.importers.measurements import load_links, load_ops, load_tensors

HEAD = "op,device,batch,time_ns,memory_bytes\n"


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "m.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_columns_may_come_in_any_order_and_times_in_other_units(tmp_path: Path) -> None:
    path = written(tmp_path, "batch, memory_bytes,op,time_us,device\n\n4,1e3,conv,1.5,gpu\n")
    table = load_ops([path])
    assert table.keys == (("conv", "gpu"),)
    assert table.size.tolist() == [4]
    assert table.figures["time_ns"].tolist() == [1500.0]
    assert table.figures["memory_bytes"].tolist() == [1000.0]
    assert table.place == (f"{path}: row 3",)


def test_names_may_hold_commas_and_line_breaks_in_quotes(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + '"a,\nb",gpu,1,2,3\nc,gpu,1,2,3\n')
    table = load_ops([path, path])
    assert [op for op, _ in table.keys] == ["a,\nb", "c"] * 2
    assert table.place[1].endswith("row 4")  # as an editor counts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (HEAD, "has a header but no rows; add the measurements"),
        (b"op\xff,device", "is not UTF-8 text"),
        ("op,device,batch,time_ns\na,gpu,1,2\n", "row 1: column 'memory_bytes' is missing"),
        ("op;device;batch;time_ns;memory_bytes\n", "row 1: unknown column 'op;device;batch"),
        (HEAD.replace("op", "op,op", 1), "row 1: column 'op' is there twice"),
        (HEAD + "a,gpu,1,2,3\n,gpu,1,2,3\n", "row 3: op is empty; name it"),
        (HEAD + "a,gpu,1.5,2,3\n", "row 2: batch must be a whole number (got '1.5')"),
        (HEAD + "a,gpu,1,-1,3\n", "row 2: time_ns must be a number from 0 to 2**53"),
        (HEAD + 'a,gpu,1,2,"3\n', "row 2: is not CSV"),
        (HEAD + "a,gpu," + "9" * 5000 + ",2,3\n", "row 2: batch must be"),
    ],
)
def test_a_bad_file_is_one_line_with_the_row(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=rf"^{path}: {re.escape(message)}.*\Z"):
        load_ops([path])


def test_links_and_tensors_have_their_own_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "source,target,bytes,time_ms\ng0,g1,0,0.5\n")
    assert load_links(path).figures["time_ns"].tolist() == [500_000.0]
    with pytest.raises(InputError, match=r"row 1: unknown column 'source'; the header is producer"):
        load_tensors(path)
