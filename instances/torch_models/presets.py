"""Models that go by a name: their classes and shapes, from ``data/traced-models.yaml``."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import Field, TypeAdapter

from placegap.instances.problem import InstancePart, Name, Positive
from placegap.instances.reading.errors import InputError, instead_of
from placegap.instances.reading.input_files import data_path
from placegap.instances.reading.yaml_file import read_yaml


class Preset(InstancePart):
    """A model that goes by a name: class, tokens of an example, fields of its configuration."""

    model_class: Name
    seq: Positive | None = None
    config: dict[str, Any] = Field(default_factory=dict)


@cache
def presets() -> dict[str, Preset]:
    """The models that ship, by name."""
    raw = read_yaml(data_path("traced-models.yaml"))
    return TypeAdapter(dict[Name, Preset]).validate_python(raw)


def find_preset(name: str) -> Preset:
    """The preset of a name; an unknown one is an InputError that offers others."""
    preset = presets().get(name)
    if preset is None:
        hint = instead_of(name, presets(), "placegap instances")
        raise InputError(
            f"there is no model {name!r}{hint} (or name a configuration: hf:./config.json)"
        )
    return preset
