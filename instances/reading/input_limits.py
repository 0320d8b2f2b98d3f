"""What the readers accept at most, in one place, and how a user raises it.

Every limit is an environment variable with a default that real files stay far below. What is above
is refused before it is read or built, in one line that names the limit; nothing is cut off.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from placegap.instances.reading.errors import InputError


@dataclass(frozen=True)
class Limit:
    """A limit: the environment variable that raises it, its default, and what it counts."""

    variable: str
    default: int
    unit: str

    def most(self) -> int:
        """The limit that applies now; a variable that is no positive integer is an InputError.

        Examples
        --------
        >>> MAX_DEVICE_PAIRS.most() == MAX_DEVICE_PAIRS.default
        True
        """
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
            raise InputError(f"{self.variable} must be a positive integer (got {text[:40]!r})")
        return int(text)

    def check(self, amount: int, what: str, source: str | Path | None = None) -> None:
        """Refuse what is above the limit.

        Examples
        --------
        >>> MAX_CELLS.check(2_000_001, "a sheet", "b.xlsx")
        Traceback (most recent call last):
        placegap.instances.reading.errors.InputError: b.xlsx: a sheet has 2000001 cells, above the \
limit of 2000000; PLACEGAP_MAX_CELLS=... raises it
        """
        if amount > self.most():
            raise InputError(self.sentence(f"{what} has {amount} {self.unit}"), source)

    def sentence(self, what: str) -> str:
        """What is above the limit, and how the limit is raised."""
        return f"{what}, above the limit of {self.most()}; {self.variable}=... raises it"


MAX_INPUT_BYTES = Limit("PLACEGAP_MAX_INPUT_BYTES", 100_000_000, "bytes")
"""A file of text, unzipped."""

MAX_WORKBOOK_BYTES = Limit("PLACEGAP_MAX_WORKBOOK_BYTES", 20_000_000, "bytes")
"""All parts of an .xlsx file, unzipped; reading them takes about a second per three megabytes."""

MAX_ONNX_BYTES = Limit("PLACEGAP_MAX_ONNX_BYTES", 2**31, "bytes")
"""An ONNX file, which may hold weights; protobuf reads no larger one."""

MAX_ONNX_NODES = Limit("PLACEGAP_MAX_ONNX_NODES", 1_000_000, "nodes and tensors")
"""What an ONNX graph lists: nodes, initializers, stated values."""

MAX_YAML_BYTES = Limit("PLACEGAP_MAX_YAML_BYTES", 300_000, "bytes")
"""A YAML file; reading it takes five seconds per megabyte (a cluster may be JSON, too)."""

MAX_VALUES = Limit("PLACEGAP_MAX_VALUES", 10_000_000, "values")
"""Values of a JSON file, or of a YAML file with each alias written out."""

MAX_CELLS = Limit("PLACEGAP_MAX_CELLS", 2_000_000, "cells")
"""Cells of a sheet or a CSV file, empty ones before the last included; four at least per row."""

MAX_DEVICES = Limit("PLACEGAP_MAX_DEVICES", 100_000, "devices")
"""Devices of a cluster."""

MAX_LINKS = Limit("PLACEGAP_MAX_LINKS", 1_000_000, "single links")
"""Links of a cluster that are stated pair by pair; ``all_to_all`` counts none."""

MAX_LINK_GROUPS = Limit("PLACEGAP_MAX_LINK_GROUPS", 5_000, "groups of links")
"""Entries ``all_to_all`` of a cluster."""

MAX_DEVICE_PAIRS = Limit("PLACEGAP_MAX_DEVICE_PAIRS", 5_000_000, "ordered device pairs")
"""Pairs of devices of an instance: every method reckons with tables of them."""

MAX_TABLE_ENTRIES = Limit("PLACEGAP_MAX_TABLE_ENTRIES", 50_000_000, "entries")
"""Entries of one table of an instance: ops x devices, tensors x devices, tensors x links."""

MAX_EVENTS = Limit("PLACEGAP_MAX_EVENTS", 1_000_000, "events")
"""Events of a pipeline's iteration; the referee takes ten seconds and a gigabyte for so many."""

MAX_TORCH_MODULES = Limit("PLACEGAP_MAX_TORCH_MODULES", 100_000, "modules and parameters")
"""Modules and parameters of a PyTorch model that is built from a configuration."""
