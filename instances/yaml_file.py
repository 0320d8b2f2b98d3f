"""Reading YAML files: duplicate keys are errors, and every error is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from placegap.instances.errors import InputError


class _Loader(yaml.SafeLoader):
    """The safe loader, which also rejects a key that appears twice in one mapping."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {key!r} appears twice", key_node.start_mark
            )
        if key is not None and key != "<<":
            seen.add(key)
    loader.flatten_mapping(node)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(path: str | Path) -> Any:
    """Parse one YAML document.

    Raises
    ------
    InputError
        One line that names the file, and the line and column of what is wrong there.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(error.strerror or str(error), path) from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not text in UTF-8: {error}", path) from None
    try:
        return yaml.load(text, Loader=_Loader)  # a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise InputError(f"{place}{error.problem or error.context}", path) from None
    except RecursionError:
        raise InputError("nested too deeply", path) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:  # odd characters, dates, keys
        raise InputError(f"is not valid YAML: {error}", path) from None
