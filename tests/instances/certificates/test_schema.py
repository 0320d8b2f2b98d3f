"""The published JSON Schemas say what the models say, and real files validate against them."""

import json
from pathlib import Path

import jsonschema
import pytest
from doubles.bad_files import bad_files, good_dnn, good_document, good_rows, workbook
from draws.tiny import tiny_instance

from placegap.instances import Makespan, Plan, example
from placegap.instances.certificates.schema import SCHEMAS, json_schema, schema_path
from placegap.instances.corpus.generate import FAMILIES, generate
from placegap.instances.files.document import Document, read_json, save_document, write_json
from placegap.instances.files.plan_file import save_plan
from placegap.instances.importers.reader import load_model
from placegap.instances.reading.input_files import data_path


def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = read_json(schema_path(name))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_what_the_models_state(name: str) -> None:
    assert read_json(schema_path(name)) == json_schema(name)


def test_plans_and_documents_of_every_source_validate(tmp_path: Path) -> None:
    write_json(good_dnn(), tmp_path / "dnn.json")
    (tmp_path / "moirai.xlsx").write_bytes(workbook(good_rows()))
    documents = [
        Document.of(example()),
        *(Document.of(tiny_instance(seed)) for seed in range(3)),
        *(Document(name=family, graph=generate(family)) for family in FAMILIES),
        *(load_model(tmp_path / file) for file in ("dnn.json", "moirai.xlsx")),
    ]
    path = tmp_path / "p.json"
    save_plan(example(), Plan.on([0, 1, 0, 0], [[0, 2, 3], [1]]), Makespan(channels="link"), path)
    validator("placegap-plan-1").validate(read_json(path))
    check = validator("placegap-1")
    for document in documents:
        save_document(document, tmp_path / "d.json")
        check.validate(read_json(tmp_path / "d.json"))


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.deep), 60])
def test_the_corpus_validates(every: int) -> None:
    check = validator("placegap-1")
    files = sorted(data_path("corpus").rglob("*.json.gz"))[::every]
    for file in files:
        check.validate(read_json(file))
    assert files


def test_the_schema_refuses_what_a_schema_can_see() -> None:
    check = validator("placegap-1")
    check.validate(good_document())
    local = ["wrong-version", "missing-graph", "unknown-field", "no-ops", "negative-time"]
    local += ["fractional-time", "time-as-text", "zero-bandwidth"]
    contents = {bad.file.removesuffix(".json"): bad.content for bad in bad_files().values()}
    for name in local:
        raw = json.loads(contents[name])
        assert not check.is_valid(raw), name
    other = {"semantics": {"objective": "fastest"}}  # no objective of that name
    assert not check.is_valid({**good_document(), **other})


def test_descriptions_come_from_the_docstrings() -> None:
    op = read_json(schema_path("placegap-1"))["$defs"]["Op"]
    assert op["description"] == "One operation of a computation graph."
    assert op["properties"]["kind"]["description"] == 'What it computes ("Conv"); a label.'
