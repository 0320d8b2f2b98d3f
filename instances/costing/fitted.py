"""What calibrated costs were fitted to, and what of an instance lies outside of that."""

from __future__ import annotations

from typing import NamedTuple

from placegap.instances.costing.catalogue import Fit, fit_of, specs_of
from placegap.instances.costing.costing import MEASURED_SHARE, MOSTLY_MODELLED
from placegap.instances.problem import Graph, Instance
from placegap.instances.problem.modules import is_expert

MOST_NAMES = 4  # kinds that a line names; more are counted


class FittedCosts(NamedTuple):
    """Where the times of an instance come from, and how far they are known to be off."""

    source: str
    fitted: str  # by kind of devices that share constants, to what these were fitted
    factor: float  # the largest of their mean factors, on what they were fitted to
    outside: str | None  # one line on what no measurement is behind

    @property
    def object(self) -> dict[str, str | float | None]:
        """What ``--json`` says of them."""
        return self._asdict()

    @property
    def line(self) -> str:
        """One line for people."""
        said = f"{self.source}; {self.factor:.2f} times off in the mean of what they were fitted to"
        return f"{said} ({self.fitted})" + (f"; {self.outside}" if self.outside else "")


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
    modelled = {
        kind: fit_of(spec)
        for kind, spec in specs_of(instance.cluster).items()
        if f"costing.{kind}.kernel_ns" in noted
    }
    if not modelled:
        return None
    measured = noted.get(MEASURED_SHARE)
    if measured is not None:  # tables are behind the times on their cards
        few = str(noted.get(MOSTLY_MODELLED, "")).split(", ")
        modelled = {kind: fit for kind, fit in modelled.items() if kind in few} or modelled
    names = {fit.fitted_to: fit for fit in modelled.values()}
    return FittedCosts(
        str(measured or "calibrated"),
        "; ".join(names),
        max(fit.factor for fit in names.values()),
        None if measured is not None else _outside(instance.graph, modelled),
    )


def _outside(graph: Graph, fits: dict[str, Fit]) -> str | None:
    """One line on cards, and on the kind of model, that no measurement is behind."""
    cards = [kind for kind, fit in fits.items() if kind not in fit.cards]
    more = f" and {len(cards) - MOST_NAMES} more" if len(cards) > MOST_NAMES else ""
    parts = [", ".join(cards[:MOST_NAMES]) + more] if cards else []
    kind = kind_of_model(graph)
    if not any(kind in fit.models for fit in fits.values()):
        parts.append(kind if kind == "prompts and training" else f"{kind} models")
    return f"no measurement of {' or of '.join(parts)} is behind these times" if parts else None
