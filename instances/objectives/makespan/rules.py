"""Makespan."""

from __future__ import annotations

from typing import ClassVar, Literal

from placegap.instances.objectives.base import PEAK, Channels, MemoryRule, Semantics, Transfers


class Makespan(Semantics):
    """End of the last op of one pass.

    Examples
    --------
    >>> Makespan(channels="link").label, Makespan(memory="peak").label
    ('makespan link per_edge', 'makespan port per_edge peak')
    """

    folder: ClassVar[str] = "makespan"
    plan_fields: ClassVar[frozenset[str]] = frozenset({"device_order", "channel_order"})

    objective: Literal["makespan"] = "makespan"
    #: Every remote edge is a transfer, or a tensor goes once to each device.
    transfers: Transfers = "per_edge"

    #: What a transfer occupies. ``free``: nothing (HEFT); ``link``: the ordered pair of devices
    #: (Pesto); ``port``: the sender's output and the receiver's input (Moirai, eq. 8);
    #: ``half_duplex``: both devices' only port.
    channels: Channels = "port"

    #: A device holds the resident bytes of its ops all the time; or their state, and what is live
    #: at the fullest moment of its schedule (`referee.memory`).
    memory: MemoryRule = "sum"

    @property
    def label(self) -> str:
        """Short text that names every rule."""
        return f"makespan {self.channels} {self.transfers}{PEAK[self.memory]}"
