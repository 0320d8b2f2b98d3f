"""The published JSON Schemas: written from the models, so that they never differ from them.

``python -m placegap.instances.io.schema`` writes the files under ``instances/data`` anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from placegap.instances.io.certificate_file import Certificate
from placegap.instances.io.document import Document, write_json
from placegap.instances.io.plan_file import PlanFile
from placegap.instances.reading.input_files import data_path

SCHEMAS: dict[str, type[BaseModel]] = {
    "placegap-1": Document,
    "placegap-plan-1": PlanFile,
    "placegap-certificate-1": Certificate,
}
"""Published schemas by the name and version of their format."""

_SECTION = re.compile(r"\n\n\w[\w ]*\n-{3,}\n.*", re.DOTALL)
_ATTRIBUTE = re.compile(r"^(\w[\w, ]*) : .*\n((?: {4}.*\n?)+)", re.MULTILINE)


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a format, as the models state it.

    What a schema cannot say (references, cycles, sums) is checked when a file is read.

    Examples
    --------
    >>> json_schema("placegap-1")["required"]
    ['name', 'graph']
    """
    schema = SCHEMAS[name].model_json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        _describe(part)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema_path(name).name,
        **schema,
    }


def schema_path(name: str) -> Path:
    """Where the package keeps a published schema."""
    return data_path(f"{name}.schema.json")


def _describe(part: dict[str, Any]) -> None:
    """Turn a numpydoc docstring into the descriptions of a class and of its fields."""
    docstring = part.get("description", "")
    part["description"] = _one_line(_SECTION.sub("", docstring))
    for names, text in _ATTRIBUTE.findall(docstring.partition("Attributes\n")[2]):
        for field in names.split(", "):
            if field in part.get("properties", {}):
                part["properties"][field]["description"] = _one_line(text)
    for field in part.get("properties", {}).values():
        field.pop("title", None)  # pydantic repeats the field's name
        if "description" in field:
            field["description"] = _one_line(field["description"])


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    for schema_name in SCHEMAS:
        write_json(json_schema(schema_name), schema_path(schema_name))
