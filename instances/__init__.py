"""What the problem is: instances, semantics, plans, and the referee that judges them."""

from placegap.instances.check import check, check_schedule
from placegap.instances.cluster_file import cluster_names, load_cluster
from placegap.instances.corpus import best_known, corpus_names, load_corpus
from placegap.instances.costing import cost_graph
from placegap.instances.dnn_split import read_split
from placegap.instances.document import Document, load_document, save_document
from placegap.instances.errors import InputError
from placegap.instances.evaluate import evaluate
from placegap.instances.examples import example
from placegap.instances.explain import explain_infeasible
from placegap.instances.generate import generate
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
from placegap.instances.networkx_graph import from_networkx, to_networkx
from placegap.instances.orders import plan_from_times
from placegap.instances.plan import (
    DeviceUse,
    Evaluation,
    Plan,
    Schedule,
    ServerUse,
    Transfer,
    TransferTimes,
    Violation,
)
from placegap.instances.plan_file import load_plan, save_plan
from placegap.instances.reader import read_model
from placegap.instances.recheck import recheck
from placegap.instances.semantics import Semantics
from placegap.instances.simulate import PlanError, simulate

__all__ = [
    "BestKnown",
    "Cluster",
    "Device",
    "DeviceUse",
    "Document",
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
    "ServerUse",
    "Transfer",
    "TransferTimes",
    "Violation",
    "best_known",
    "check",
    "check_schedule",
    "cluster_names",
    "corpus_names",
    "cost_graph",
    "evaluate",
    "example",
    "explain_infeasible",
    "from_networkx",
    "generate",
    "load_cluster",
    "load_corpus",
    "load_document",
    "load_plan",
    "plan_from_times",
    "read_model",
    "read_split",
    "recheck",
    "save_document",
    "save_plan",
    "simulate",
    "to_networkx",
]
