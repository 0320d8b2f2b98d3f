"""Names that functions had up to 0.2; they warn, and leave with 0.3."""

from __future__ import annotations

from typing import Any

from typing_extensions import deprecated

from placegap.instances.files.document import Document
from placegap.instances.importers.dnn_partitioning import load_split
from placegap.instances.importers.reader import load_model
from placegap.instances.problem import Plan


@deprecated("placegap.instances.read_model is now load_model")
def read_model(*args: Any, **options: Any) -> Document:
    """The old name of `load_model`: `args` and `options` are its arguments; it warns."""
    return load_model(*args, **options)


@deprecated("placegap.instances.read_split is now load_split")
def read_split(*args: Any, **options: Any) -> Plan:
    """The old name of `load_split`: `args` and `options` are its arguments; it warns."""
    return load_split(*args, **options)
