from .check import check, check_schedule
from .cluster_file import cluster_names, load_cluster
from .corpus import best_known, corpus_names, load_corpus
from .costing import cost_graph
from .dnn_split import read_split
from .document import Document, load_document, save_document
from .errors import InputError
from .evaluate import evaluate
from .examples import example
from .explain import explain_infeasible
from .generate import generate
from .model import (
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
from .networkx_graph import from_networkx, to_networkx
from .orders import plan_from_times
from .plan import (
    DeviceUse,
    Evaluation,
    Plan,
    Schedule,
    ServerUse,
    Transfer,
    TransferTimes,
    Violation,
)
from .plan_file import load_plan, save_plan
from .reader import read_model
from .recheck import recheck
from .semantics import Semantics
from .simulate import PlanError, simulate

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
