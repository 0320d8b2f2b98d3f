"""Names that functions had up to 0.2; they warn, and leave with 0.3."""

from __future__ import annotations

import warnings
from typing import Any

from placegap.instances.files.document import Document
from placegap.instances.importers.dnn_partitioning import load_split
from placegap.instances.importers.reader import load_model
from placegap.instances.problem import Plan


def read_model(*args: Any, **options: Any) -> Document:
    """The old name of `load_model`: `args` and `options` are its arguments; it warns.

    Examples
    --------
    >>> import contextlib
    >>> from placegap.instances import InputError
    >>> with warnings.catch_warnings(record=True) as seen, contextlib.suppress(InputError):
    ...     warnings.simplefilter("always")
    ...     found = read_model("no such file.json")
    >>> str(seen[0].message)
    'placegap.instances.read_model is now load_model'
    """
    _warn("read_model", "load_model")
    return load_model(*args, **options)


def read_split(*args: Any, **options: Any) -> Plan:
    """The old name of `load_split`: `args` and `options` are its arguments; it warns.

    Examples
    --------
    >>> import contextlib
    >>> from placegap.instances import InputError, example
    >>> with warnings.catch_warnings(record=True) as seen, contextlib.suppress(InputError):
    ...     warnings.simplefilter("always")
    ...     found = read_split(example(), "no such file.json")
    >>> str(seen[0].message)
    'placegap.instances.read_split is now load_split'
    """
    _warn("read_split", "load_split")
    return load_split(*args, **options)


def _warn(old: str, new: str) -> None:
    text = f"placegap.instances.{old} is now {new}"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
