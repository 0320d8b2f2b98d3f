"""The published JSON Schemas: written from the models, so that they never differ from them.

``python -m placegap.instances.certificates.schema`` writes the files under ``instances/data`` anew.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from placegap.instances.certificates.certificate_file import Certificate
from placegap.instances.files.document import Document, write_json
from placegap.instances.files.plan_file import PlanFile
from placegap.instances.reading.input_files import data_path

# Published schemas by the name and version of their format.
SCHEMAS: dict[str, type[BaseModel]] = {
    "placegap-1": Document,
    "placegap-plan-1": PlanFile,
    "placegap-certificate-1": Certificate,
}

_SECTION = re.compile(r"\n\n\w[\w ]*\n-{3,}\n.*", re.DOTALL)
_FIELD = re.compile(r"((?: *#: .*\n)+) *(\w+)\b")


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a format, as the models state it."""
    # What a schema cannot say (references, cycles, sums) is checked when a file is read.
    schema = SCHEMAS[name].model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    titles = {part.get("title") for part in parts}
    kinds = (kind for kind in _kinds(BaseModel) if kind.__name__ in titles)
    comments = {kind.__name__: _comments_of(kind) for kind in kinds}
    for part in parts:
        _describe(part, comments.get(part.get("title", ""), {}))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema_path(name).name,
        **schema,
    }


def schema_path(name: str) -> Path:
    """Where the package keeps a published schema."""
    return data_path(f"{name}.schema.json")


def _kinds(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _comments_of(kind: type[BaseModel]) -> dict[str, str]:
    """The comments above the fields, by field; one that begins with several names is of each."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        ours = issubclass(base, BaseModel) and base.__module__.startswith("placegap.")
        for comment, field in _FIELD.findall(inspect.getsource(base) if ours else ""):
            names, colon, text = _one_line(comment.replace("#: ", "")).partition(": ")
            of = names.split(", ") if colon else []
            several = len(of) > 1 and all(name in kind.model_fields for name in of)
            found |= dict.fromkeys(of, text) if several else {field: names + colon + text}
    return found


def _describe(part: dict[str, Any], comments: dict[str, str]) -> None:
    """Turn the docstring and the comments of a class into descriptions of it and of its fields."""
    part["description"] = _one_line(_SECTION.sub("", part.get("description", "")))
    for name, field in part.get("properties", {}).items():
        field.pop("title", None)  # pydantic repeats the field's name
        if name in comments:
            field["description"] = comments[name]


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    for schema_name in SCHEMAS:
        write_json(json_schema(schema_name), schema_path(schema_name))
