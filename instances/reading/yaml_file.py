"""Reading YAML files: duplicate keys are errors, and every error is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import MAX_VALUES, MAX_YAML_BYTES, read_content

LONGEST_NUMBER = 100  # characters of an integer; no quantity comes near


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


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    if len(node.value) > LONGEST_NUMBER:  # base 60 takes a time that grows with its square
        raise yaml.constructor.ConstructorError(
            None, None, f"a number of {len(node.value)} characters", node.start_mark
        )
    return yaml.SafeLoader.construct_yaml_int(loader, node)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def read_yaml(path: str | Path) -> Any:
    """Parse one YAML document."""
    try:
        text = read_content(path, MAX_YAML_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"is not text in UTF-8: {error}", path) from None
    try:
        return _parse(text, path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise InputError(f"{place}{error.problem or error.context}", path) from None
    except RecursionError:
        raise InputError("nested too deeply", path) from None
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(f"is not valid YAML: {error}", path) from None  # odd dates, keys, tags


def _parse(text: str, path: str | Path) -> Any:
    loader = _Loader(text)  # a subclass of SafeLoader
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        MAX_VALUES.check(_expanded(root, {}), "the file, each alias written out,", path)
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _expanded(node: yaml.Node, sizes: dict[int, int | None]) -> int:
    """Values below a node with aliases written out: a few lines can stand for billions."""
    known = sizes.setdefault(id(node), -1)
    if known is None:
        raise yaml.composer.ComposerError(None, None, "an alias of itself", node.start_mark)
    if known >= 0:
        return known
    sizes[id(node)] = None
    below = []
    if isinstance(node, yaml.SequenceNode):
        below = node.value
    elif isinstance(node, yaml.MappingNode):
        below = [part for pair in node.value for part in pair]
    size = 1 + sum(_expanded(part, sizes) for part in below)
    sizes[id(node)] = size
    return size
