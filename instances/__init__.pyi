from .corpus.corpus import best_known, corpus_names, load_corpus
from .corpus.generate import generate
from .costing.costing import cost_graph
from .files.cluster_file import cluster_names, load_cluster
from .files.document import Document, from_networkx, load_document, save_document, to_networkx
from .files.plan_file import load_plan, save_plan
from .importers.dnn_partitioning import load_split
from .importers.old_names import read_model, read_split
from .importers.reader import load_model
from .objectives.makespan.referee import check_schedule
from .objectives.makespan.simulate import simulate
from .oracle.recheck import recheck
from .problem.cluster import Cluster, Device
from .problem.example import example
from .problem.explain import explain_infeasible
from .problem.graph import Graph
from .problem.instance import BestKnown, Instance
from .problem.links import Link
from .problem.op import Cache, Edge, Mode, Op
from .problem.op_kernel import AttentionKernel, ExpertsKernel, MatrixProduct
from .problem.part import Provenance
from .problem.plan import (
    DeviceUse,
    Evaluation,
    Plan,
    Schedule,
    ServerUse,
    Transfer,
    TransferTimes,
    Violation,
)
from .problem.semantics import (
    HybridPipeline,
    LatencySubgraphs,
    Makespan,
    MaxContext,
    MaxLoad,
    MaxLoadFwdBwd,
    PipelineIteration,
    Semantics,
    ServingFlow,
)
from .reading.errors import InputError
from .referee.channels import plan_from_times
from .referee.evaluate import check, evaluate
from .referee.rules import PlanError
from .transforms.table import coarsen, expand

__all__ = [
    "AttentionKernel",
    "BestKnown",
    "Cache",
    "Cluster",
    "Device",
    "DeviceUse",
    "Document",
    "Edge",
    "Evaluation",
    "ExpertsKernel",
    "Graph",
    "HybridPipeline",
    "InputError",
    "Instance",
    "LatencySubgraphs",
    "Link",
    "Makespan",
    "MatrixProduct",
    "MaxContext",
    "MaxLoad",
    "MaxLoadFwdBwd",
    "Mode",
    "Op",
    "PipelineIteration",
    "Plan",
    "PlanError",
    "Provenance",
    "Schedule",
    "Semantics",
    "ServerUse",
    "ServingFlow",
    "Transfer",
    "TransferTimes",
    "Violation",
    "best_known",
    "check",
    "check_schedule",
    "cluster_names",
    "coarsen",
    "corpus_names",
    "cost_graph",
    "evaluate",
    "example",
    "expand",
    "explain_infeasible",
    "from_networkx",
    "generate",
    "load_cluster",
    "load_corpus",
    "load_document",
    "load_model",
    "load_plan",
    "load_split",
    "plan_from_times",
    "read_model",
    "read_split",
    "recheck",
    "save_document",
    "save_plan",
    "simulate",
    "to_networkx",
]
