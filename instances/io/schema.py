"""The published JSON Schemas: written from the models, so that they never differ from them.

``python -m placegap.instances.io.schema`` writes the files under ``instances/data`` anew.
"""

from __future__ import annotations

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from placegap.instances.io.certificate_file import Certificate
from placegap.instances.io.document import Document, write_json
from placegap.instances.io.plan_file import PlanFile
from placegap.instances.problem import semantics
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
        _describe(part, _rules_of(part.get("title", "")))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": schema_path(name).name,
        **schema,
    }


def schema_path(name: str) -> Path:
    """Where the package keeps a published schema."""
    return data_path(f"{name}.schema.json")


def _rules_of(name: str) -> dict[str, str]:
    """The docstrings below the fields of a class of semantics; of another class, none.

    pydantic would read them, from the source, whenever the module is loaded.
    """
    found: dict[str, str] = {}
    for kind in reversed(getattr(getattr(semantics, name, None), "__mro__", ())):
        if kind.__module__ != semantics.__name__:
            continue
        (tree,) = ast.parse(inspect.getsource(kind)).body
        for field, text in pairwise(tree.body if isinstance(tree, ast.ClassDef) else ()):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=rule)),
                    ast.Expr(value=ast.Constant(value=str(said))),
                ):
                    found[rule] = inspect.cleandoc(said)
    return found


def _describe(part: dict[str, Any], rules: dict[str, str]) -> None:
    """Turn docstrings, of numpydoc or of single rules, into descriptions of a class and fields."""
    for field, text in rules.items():
        found = {"description": text} | part["properties"][field]
        part["properties"][field] = dict(sorted(found.items()))
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
