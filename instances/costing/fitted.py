"""What calibrated costs were fitted to, and what of an instance lies outside of that."""

from __future__ import annotations

from typing import NamedTuple

from placegap.instances.costing.catalogue import Fit, fit_of, specs_of
from placegap.instances.costing.costing import MEASURED_SHARE
from placegap.instances.problem import Graph, Instance
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.problem.modules import is_expert

# Parameter of the provenance: by which measured lines times were scaled; with ".ns", what the first
# of them takes.
MEASURED_LINES = "measured_lines"
MOST_NAMES = 4  # kinds that a line names; more are counted


class FittedCosts(NamedTuple):
    """Where the times of an instance come from, and how far they are known to be off."""

    source: str
    fitted: str | None = None  # what constants were fitted to; None for measured times
    factor: float | None = None  # by how much they are off on it, the largest mean of a kind
    outside: str | None = None  # one line on what no measurement is behind

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines for people."""
        if self.factor is None:
            return (self.source,)
        said = f"{self.source}: off by {self.factor:.2f} in the mean of {self.fitted}"
        return (said, self.outside) if self.outside else (said,)


def kind_of_model(graph: Graph) -> str:
    """dense, moe, recurrent, moe-recurrent or latent; prompts and training are kinds by themselves.

    Recurrent are models with a state of a recurrence or a convolution; latent is attention to a
    cache of compressed keys and values.
    """
    if not graph.provenance.parameters.get("decode"):
        return "prompts and training"
    modules = {op.module or "" for op in graph.ops}
    if any("kv_a_proj" in module for module in modules):  # DeepSeek's name, which others kept
        return "latent"
    attends = {op.module for op in graph.ops if "attention" in op.kind}
    recurrent = any(
        op.state_bytes and not op.parameter_bytes and op.module not in attends for op in graph.ops
    )
    parts = ("moe",) * any(map(is_expert, graph.ops)) + ("recurrent",) * recurrent
    return "-".join(parts) or "dense"


def fitted_costs(instance: Instance) -> FittedCosts | None:
    """What is known of the times of an instance; None where none are calibrated."""
    noted = instance.graph.provenance.parameters
    if (lines := noted.get(MEASURED_LINES)) is not None:
        return FittedCosts(f"scaled to {lines}")
    measured = noted.get(MEASURED_SHARE)
    if measured is not None:  # which says how much of the time is modelled
        return FittedCosts(str(measured))
    modelled = {
        kind: fit_of(spec)
        for kind, spec in specs_of(instance.cluster).items()
        if f"costing.{kind}.kernel_ns" in noted
    }
    if not modelled:
        return None
    texts = {fit.fitted_to: fit.factor for fit in modelled.values()}
    outside = _outside(instance.graph, modelled)
    return FittedCosts("calibrated", "; ".join(texts), max(texts.values()), outside)


def beside_line(instance: Instance, value_ns: int | None) -> tuple[str, ...]:
    """A sentence on a token's time beside that of the line that was measured, if one was."""
    measured_ns = instance.graph.provenance.parameters.get(f"{MEASURED_LINES}.ns")
    if measured_ns is None or not value_ns:
        return ()
    sequences = int(instance.graph.provenance.parameters.get("batch") or 1)
    factor, tokens = int(measured_ns) / value_ns, sequences * NS_PER_S / value_ns
    beside = f"{factor:.3g} times as fast" if abs(factor - 1) > 1e-3 else "as fast"
    return (f"{tokens:.4g} tokens/s, {beside} as the measured line",)


def _outside(graph: Graph, fits: dict[str, Fit]) -> str | None:
    """One line on cards, and on the kind of model, that no measurement is behind."""
    cards = [kind for kind, fit in fits.items() if kind not in fit.cards]
    more = f" and {len(cards) - MOST_NAMES} more" if len(cards) > MOST_NAMES else ""
    parts = [", ".join(cards[:MOST_NAMES]) + more] if cards else []
    kind = kind_of_model(graph)
    if not any(kind in fit.models for fit in fits.values()):
        parts.append(kind if kind == "prompts and training" else f"{kind} models")
    return f"no measurement of {' or of '.join(parts)} is behind these times" if parts else None
