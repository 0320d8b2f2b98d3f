"""Trained policies of Placeto as files: weights in JSON, compressed, a few dozen kB.

A policy is for a number of devices: its features tell them apart, and its head names them.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from placegap.experiments.research.learned.placeto import PlacetoPolicy
from placegap.experiments.research.learned.placeto_nodes import STATIC_FEATURES
from placegap.instances.io.document import read_json
from placegap.instances.reading.errors import InputError, from_validation_error, instead_of

FOLDER = Path(__file__).with_name("policies")
SUFFIX = ".json.gz"
DIGITS = 4
"""Significant digits of a weight."""


class PolicyFile(BaseModel):
    """What a file of a policy holds.

    Attributes
    ----------
    num_devices, rounds : int
        What the policy was built for.
    trained_on : str
        Graphs, cluster and numbers of its training, for people.
    weights : dict of str to list of float
        Each tensor, flat.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    num_devices: int = Field(ge=1, le=1_000)
    rounds: int = Field(ge=1, le=64)
    trained_on: str = ""
    weights: dict[str, list[float]]


def new_policy(num_devices: int, rounds: int) -> PlacetoPolicy:
    """An untrained policy, by torch's random numbers."""
    return PlacetoPolicy(STATIC_FEATURES + num_devices, num_devices, rounds)


def shipped() -> tuple[str, ...]:
    """Names of the policies that ship.

    Examples
    --------
    >>> "blocks-4" in shipped()
    True
    """
    return tuple(sorted(path.name.removesuffix(SUFFIX) for path in FOLDER.glob("*" + SUFFIX)))


def save_policy(policy: PlacetoPolicy, path: str | Path, num_devices: int, trained_on: str) -> None:
    """Write a policy; equal policies give equal bytes.

    Examples
    --------
    >>> import tempfile
    >>> policy = new_policy(2, rounds=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_policy(policy, Path(folder, "policy.json.gz"), 2, "nothing")
    ...     again = load_policy(str(Path(folder, "policy.json.gz")), 2)
    >>> again.rounds
    1
    """
    weights = {
        name: [float(f"{value:.{DIGITS}g}") for value in tensor.flatten().tolist()]
        for name, tensor in policy.state_dict().items()
    }
    content = PolicyFile(
        num_devices=num_devices, rounds=policy.rounds, trained_on=trained_on, weights=weights
    )
    data = json.dumps(content.model_dump(), separators=(",", ":")).encode()
    Path(path).write_bytes(gzip.compress(data, mtime=0))


def load_policy(name: str, num_devices: int) -> PlacetoPolicy:
    """A policy that ships, by name, or that of a file.

    Raises
    ------
    InputError
        One line: there is none of that name, it cannot be read, or it is for other devices.

    Examples
    --------
    >>> load_policy("bloc", 4)
    Traceback (most recent call last):
    placegap.instances.reading.errors.InputError: no policy or file 'bloc'; did you mean 'blocks-4'?
    """
    path = FOLDER / (name + SUFFIX)
    if name not in shipped():
        path = Path(name)
        if not path.is_file():
            hint = instead_of(name, shipped())
            raise InputError(f"no policy or file {name!r}{hint}")
    content = _read(path)
    if content.num_devices != num_devices:
        raise InputError(
            f"the policy is for {content.num_devices} devices, the cluster has {num_devices};"
            " train one for these",
            path,
        )
    policy = new_policy(num_devices, content.rounds)
    state: dict[str, Any] = policy.state_dict()
    try:
        policy.load_state_dict(
            {
                key: torch.tensor(values).reshape(state[key].shape)
                for key, values in content.weights.items()
            }
        )
    except (KeyError, RuntimeError):
        raise InputError(
            "the weights are not those of a policy of this version; train it anew", path
        ) from None
    return policy


def _read(path: Path) -> PolicyFile:
    raw = read_json(path)
    try:
        return PolicyFile.model_validate(raw)
    except ValidationError as error:
        raise from_validation_error(error, raw, path) from None
