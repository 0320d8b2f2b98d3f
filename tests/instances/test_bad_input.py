"""Malformed files give one line that names the file and the place, never a traceback."""

from __future__ import annotations

import gzip
import json
import random
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
from placegap.instances.files.document import parse_document, write_json
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


def test_every_malformed_file_has_a_name_of_its_own() -> None:
    assert len({bad.file for bad in CASES.values()}) == len(CASES) >= 30


def test_the_files_that_the_cases_spoil_are_good(tmp_path: Path) -> None:
    parse_document(good_document(), "good").instance()
    write_json(good_dnn(), tmp_path / "dnn.json")
    (tmp_path / "moirai.xlsx").write_bytes(workbook(good_rows()))
    for file in ("dnn.json", "moirai.xlsx"):
        load_model(tmp_path / file).instance()


def test_no_damage_to_a_good_file_gives_anything_but_an_instance_or_one_line(
    tmp_path: Path,
) -> None:
    rng = random.Random(2)
    good = {
        "own.json": json.dumps(good_document()).encode(),
        "own.json.gz": gzip.compress(json.dumps(good_document()).encode(), mtime=0),
        "dnn.json": json.dumps(good_dnn()).encode(),
        "moirai.xlsx": workbook(good_rows()),
    }
    lines = []
    for _ in range(400):
        file = rng.choice(list(good))
        data = bytearray(good[file])
        for _ in range(rng.randrange(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        (tmp_path / file).write_bytes(data)
        try:
            load_model(tmp_path / file).instance()
        except InputError as error:
            lines.append(str(error))
    assert len(lines) > 200
    assert not any("\n" in line for line in lines)


def test_missing_files_and_directories_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        load_model(tmp_path)
    with pytest.raises(InputError, match=r"none\.json: No such file"):
        load_model(tmp_path / "none.json")
    (tmp_path / "file.json").write_text("{}")
    with pytest.raises(InputError, match=r"below\.json: Not a directory"):
        load_model(tmp_path / "file.json" / "below.json")
