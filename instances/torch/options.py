"""What a user chooses of a traced model, and the names by which such models go.

Models that go by a name: their classes and shapes, from ``data/traced-models.yaml``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, get_args

from pydantic import Field, TypeAdapter

from placegap.instances.problem.instance import InstancePart, Name, Positive
from placegap.instances.reading.errors import InputError, instead_of
from placegap.instances.reading.input_files import data_path
from placegap.instances.reading.yaml_file import read_yaml
from placegap.instances.torch.fx_reader import Tied

UNCOUNTED = "reads_weights_without_flop_rule"
"""Parameter of the provenance that names ops whose FLOPs count as 0, though they read weights."""

ASSUMED = "traced_as"
"""Parameter of the provenance that says the sizes and number type of a traced model, and its
weights."""

UNREAD = "parameters_that_no_op_reads"
"""Parameter of the provenance that names modules whose weights the traced inputs do not reach."""

PREFIXES = ("hf:", "py:")

Dtype = Literal["float32", "float16", "bfloat16", "float64"]

Optimizer = Literal["sgd", "momentum", "adam", "adam8bit", "none"]

LARGEST_SIZE = 10**7
"""Of the batch, of the tokens and of the cache: sizes beyond are slips."""


@dataclass(frozen=True)
class TraceOptions:
    """How a model is traced.

    Attributes
    ----------
    batch : int
        Examples in a batch.
    seq : int or None
        Tokens (or residues, or samples) of an example; None: what the model states.
    dtype : {"float32", "float16", "bfloat16", "float64"} or None
        Number type of weights and activations; None: what the configuration states, else float32.
    tied : {"copy", "together"}
        Whether ops that read one parameter may each hold a copy, or form a colocation group.
    keep_modules : bool
        Whether the blocks that the model says are not to be split, and the other modules that hold
        parameters, stay whole, as colocation groups.
    kv_tokens : int
        Tokens for which attention ops hold keys and values.
    train : bool
        Whether a whole training step is traced: forward, backward, updates of the weights.
    optimizer : {"sgd", "momentum", "adam", "adam8bit", "none"} or None
        What updates the weights; "none": nothing does, for what runs once per microbatch; None:
        adam.

    Examples
    --------
    >>> TraceOptions(seq=0)
    Traceback (most recent call last):
    placegap.instances.reading.errors.InputError: --seq must be from 1 to 10000000 (got 0)
    """

    batch: int = 1
    seq: int | None = None
    dtype: Dtype | None = None
    tied: Tied = "copy"
    keep_modules: bool = False
    kv_tokens: int = 0
    train: bool = False
    optimizer: Optimizer | None = None

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("seq", 1), ("kv_tokens", 0)):
            value = getattr(self, name)
            if value is not None and not least <= value <= LARGEST_SIZE:
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"{option} must be from {least} to {LARGEST_SIZE} (got {value})")
        for name, kinds in (("dtype", Dtype), ("tied", Tied), ("optimizer", Optimizer)):
            given = getattr(self, name)
            if given not in get_args(kinds) and (name == "tied" or given is not None):
                raise InputError(f"--{name} {given!r} is none of {', '.join(get_args(kinds))}")
        if self.optimizer is not None and not self.train:
            raise InputError("--optimizer belongs to training; add --train")
        if self.kv_tokens and self.train:
            raise InputError("--kv-tokens is for inference; leave out --train")

    def chosen(self) -> dict[str, str | int | float | bool | None]:
        """The options that are not at their default, by name."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) != each.default
        }


def is_traced(model: str) -> bool:
    """Whether a name is one of a model that is traced.

    Examples
    --------
    >>> is_traced("hf:gpt2"), is_traced("py:mine:build"), is_traced("gpt2.json")
    (True, True, False)
    """
    return model.startswith(PREFIXES)


class Preset(InstancePart):
    """A model that goes by a name: class, tokens of an example, fields of its configuration."""

    model_class: Name
    seq: Positive | None = None
    config: dict[str, Any] = Field(default_factory=dict)


@cache
def presets() -> dict[str, Preset]:
    """The models that ship, by name.

    Examples
    --------
    >>> presets()["gpt3-13b"].config["n_layer"]
    40
    """
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


DeviceType = Literal["cpu", "cuda"]
