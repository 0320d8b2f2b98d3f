"""What the problem is: instances, semantics, plans, and the referee that judges them."""

from placegap.instances.check import check
from placegap.instances.errors import InputError
from placegap.instances.evaluate import evaluate
from placegap.instances.examples import example
from placegap.instances.model import (
    BestKnown,
    Cluster,
    Device,
    Edge,
    Graph,
    Instance,
    Link,
    Op,
    Provenance,
)
from placegap.instances.plan import (
    DeviceUse,
    Evaluation,
    Plan,
    Schedule,
    Transfer,
    TransferTimes,
    Violation,
)
from placegap.instances.semantics import Semantics
from placegap.instances.simulate import PlanError, simulate

__all__ = [
    "BestKnown",
    "Cluster",
    "Device",
    "DeviceUse",
    "Edge",
    "Evaluation",
    "Graph",
    "InputError",
    "Instance",
    "Link",
    "Op",
    "Plan",
    "PlanError",
    "Provenance",
    "Schedule",
    "Semantics",
    "Transfer",
    "TransferTimes",
    "Violation",
    "check",
    "evaluate",
    "example",
    "simulate",
]
