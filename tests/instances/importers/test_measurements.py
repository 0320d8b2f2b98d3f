"""Measurement files: what is read, and one line with file, row and mend where it cannot be."""

from pathlib import Path

from placegap.instances.importers.measurements import load_links, load_ops

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


def test_links_have_their_own_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "source,target,bytes,time_ms\ng0,g1,0,0.5\n")
    assert load_links(path).figures["time_ns"].tolist() == [500_000.0]
