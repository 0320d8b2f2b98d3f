"""Tokens per second of machines that hold ranges of layers."""

from __future__ import annotations

from typing import ClassVar, Literal

from placegap.instances.objectives.base import Semantics, Unit


class ServingFlow(Semantics):
    """Tokens per second that flow through machines which hold ranges of layers; maximized.

    A machine holds layers in a row or none, and each layer may be held many times. A token goes
    from the source to a machine that holds the first layer, then to one that begins where the last
    one ended, until the last layer is passed. Machines (with h layers: their table) and links
    limit the flow; the value is the largest one, in millionths of a token per second. Links that
    the cluster does not state do not exist; latencies do not count.

    Source: Mei et al., Helix, ASPLOS 2025.

    Examples
    --------
    >>> ServingFlow(partial_inference=True).label
    'serving_flow partial inference'
    """

    folder: ClassVar[str] = "flow"
    unit: ClassVar[Unit] = "microtokens_per_s"
    is_maximized: ClassVar[bool] = True
    holds_ranges: ClassVar[bool] = True

    objective: Literal["serving_flow"] = "serving_flow"

    #: Whether a token may enter a machine within its range, which then runs the rest of it.
    partial_inference: bool = False

    @property
    def label(self) -> str:
        """Short text that names every rule in force."""
        return "serving_flow" + " partial inference" * self.partial_inference

    def text(self, value: int) -> str:
        """A value or bound as messages state it, to the last digit."""
        return f"{value / 10**6:.6f} tokens/s"
