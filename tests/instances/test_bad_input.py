"""Malformed files give one line that names the file and the place, never a traceback."""

from pathlib import Path

import pytest
from doubles.bad_files import (
    bad_files,
    good_dnn,
    good_document,
    good_rows,
    workbook,
    write_bad_files,
)

from placegap.instances import InputError
from placegap.instances.files.document import write_json
from placegap.instances.importers.reader import load_model

CASES = bad_files()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_bad_files(tmp_path_factory.mktemp("bad"))


@pytest.mark.parametrize("name", CASES)
def test_a_malformed_file_gives_one_line_with_file_and_place(
    name: str, paths: dict[str, Path]
) -> None:
    with pytest.raises(InputError) as caught:
        load_model(paths[name]).instance()
    line = str(caught.value)
    assert line.startswith(f"{paths[name]}: ")
    assert CASES[name].place in line.removeprefix(str(paths[name]))
    assert "\n" not in line
    assert len(line) - len(str(paths[name])) < 250


def test_the_files_that_the_cases_spoil_are_good(tmp_path: Path) -> None:
    for name, content in (("own.json", good_document()), ("dnn.json", good_dnn())):
        write_json(content, tmp_path / name)
        load_model(tmp_path / name).instance()
    (tmp_path / "moirai.xlsx").write_bytes(workbook(good_rows()))
    load_model(tmp_path / "moirai.xlsx").instance()
