"""Options that several commands share, and what they choose."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

from placegap.instances.reading.errors import InputError


class ObjectiveName(StrEnum):
    """Objectives, as typer wants them."""

    MAKESPAN = "makespan"
    MAX_LOAD = "max_load"
    MAX_LOAD_FWD_BWD = "max_load_fwd_bwd"
    LATENCY_SUBGRAPHS = "latency_subgraphs"


class PlansName(StrEnum):
    """Classes of plans."""

    ANY = "any"
    CONVEX = "convex"
    CHAIN = "chain"


class ChannelsName(StrEnum):
    """What a transfer occupies."""

    FREE = "free"
    LINK = "link"
    PORT = "port"
    HALF_DUPLEX = "half_duplex"


class TransfersName(StrEnum):
    """What a transfer is."""

    PER_EDGE = "per_edge"
    PER_TENSOR = "per_tensor"


class LoadName(StrEnum):
    """How compute and communication make a load."""

    ADD = "add"
    OVERLAP = "overlap"


class UnitName(StrEnum):
    """Units of time."""

    NS = "ns"
    US = "us"
    MS = "ms"
    S = "s"


Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A readable file, or a name of the corpus.")
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", help="Name of a shipped cluster (see 'instances'), or a file."),
]
ObjectiveOption = Annotated[
    ObjectiveName | None, typer.Option("--objective", help="What to minimize.")
]
PlansOption = Annotated[
    PlansName | None, typer.Option("--plans", help="max_load: which plans compete.")
]
ChannelsOption = Annotated[
    ChannelsName | None, typer.Option("--channels", help="makespan: what a transfer occupies.")
]
TransfersOption = Annotated[
    TransfersName | None,
    typer.Option("--transfers", help="makespan: one per edge, or per tensor and device."),
]
LoadOption = Annotated[
    LoadName | None, typer.Option("--load", help="max_load: compute + communication, or the max.")
]
ReplicasOption = Annotated[
    bool | None,
    typer.Option("--replicas/--no-replicas", help="max_load: equal devices may share a stage."),
]
LevelsOption = Annotated[
    int | None,
    typer.Option(
        "--levels", min=1, max=2, help="max_load: 2 charges servers for what leaves them."
    ),
]
SubgraphsOption = Annotated[
    int | None,
    typer.Option("--subgraphs", min=1, help="latency_subgraphs: calls per accelerator."),
]
UnitOption = Annotated[
    UnitName | None,
    typer.Option("--time-unit", help="Unit of times in files that leave it open (default ms)."),
]
DimOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim", metavar="NAME=SIZE", help="Size of a dimension that an ONNX file leaves open."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def parse_pairs(pairs: Iterable[str], option: str = "--param") -> dict[str, str]:
    """``key=value`` texts of a repeated option; the methods read the values.

    Examples
    --------
    >>> parse_pairs(["contiguous=no", "form=a=b"])
    {'contiguous': 'no', 'form': 'a=b'}
    """
    params: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InputError(f"{option} {pair!r} is not key=value")
        if key in params:
            raise InputError(f"{option} {key!r} is given twice")
        params[key] = value
    return params


def parse_dims(pairs: Iterable[str] | None) -> tuple[tuple[str, int], ...]:
    """``NAME=SIZE`` texts of ``--dim``.

    Examples
    --------
    >>> parse_dims(["N=8"])
    (('N', 8),)
    """
    dims = []
    for name, text in parse_pairs(pairs or (), "--dim").items():
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
            raise InputError(f"--dim {name!r}: the size must be a positive integer (got {text!r})")
        dims.append((name, int(text)))
    return tuple(dims)
