"""Which module registers which method, and what a method costs as a start (`starts`).

Made by ``python docs/site/methods.py``. The order is that of every list of methods, and
of equal plans the first one's counts: lines may be moved, among those of a claim.
"""

from placegap.instances.reading.checkout import has_research
from placegap.solvers.core.method import Cost, Home

# Name of a method, and where it is.
HOMES = {
    "auto": Home("solving.auto"),
    "brute-force": Home("brute_force"),
    "ideal-dp": Home("chains.ideal_dp"),
    "stage-cuts": Home("pipeline.stage_cuts"),
    "hybrid-cuts": Home("hybrid.hybrid_cuts"),
    "most-tokens": Home("solving.most_tokens"),
    "moirai": Home("models.milps"),
    "pesto": Home("models.milps"),
    "throughput-ip": Home("models.milps"),
    "archer-exact": Home("models.archer"),
    "latency-ip": Home("latency.ip"),
    "latency": Home("latency.latency"),
    "cp-sat": Home("models.cp_sat"),
    "decomposition": Home("decomposition.decomposition"),
    "helix": Home("models.milps"),
    "serving-flow": Home("serving_flow.search"),
    "noncontiguous": Home("noncontiguous.noncontiguous"),
    "single-device": Home(
        "placers.baselines",
        {
            "makespan": Cost(0.3, 1.0, always=True),
            "max_load": Cost(0.3, 0.5, always=True),
            "pipeline_iteration": Cost(0.3, 0.5, always=True),
        },
    ),
    "m-topo": Home(
        "placers.baechi",
        {
            "makespan": Cost(0.4, 1.4, always=True),
            "max_load": Cost(0.3, 0.5, always=True),
            "pipeline_iteration": Cost(0.3, 0.5, always=True),
        },
    ),
    "heft": Home("placers.heft_peft_cpop", {"makespan": Cost(0.4, 4.3, always=True)}),
    "memory-cuts": Home("placers.order_cuts", {"makespan": Cost(0.6, 4.0)}),
    "interleaved-cuts": Home("placers.order_cuts", {"makespan": Cost(5.0, 10.0)}),
    "dsc-glb": Home("placers.cluster_balancing", {"makespan": Cost(0.3, 2.0)}),
    "celeritas": Home("placers.celeritas", {"makespan": Cost(0.5, 6.0)}),
    "etf": Home("placers.earliest_start"),
    "peft": Home("placers.heft_peft_cpop", {"makespan": Cost(0.5, 6.0)}),
    "even-split": Home("placers.pipeline_stages", {"pipeline_iteration": Cost(5.0, 5.0)}),
    "round-robin": Home("placers.baselines", {"pipeline_iteration": Cost(0.4, 2.0)}),
    "m-etf": Home("placers.baechi", {"makespan": Cost(0.5, 20.0)}),
    "lc-glb": Home("placers.cluster_balancing"),
    "d-dps": Home("placers.dynamic_critical_path"),
    "cpop": Home("placers.heft_peft_cpop", {"makespan": Cost(0.5, 5.0)}),
    "order-place": Home("placers.celeritas", {"makespan": Cost(0.5, 6.0)}),
    "greedy": Home("placers.greedy_and_moves", {"pipeline_iteration": Cost(0.4, 2.0)}),
    "random": Home("placers.baselines", {"pipeline_iteration": Cost(0.4, 2.0)}),
    "data-parallel": Home("placers.baselines", {"max_load": Cost(0.3, 0.5)}),
    "local-search": Home("placers.greedy_and_moves", {"max_load": Cost(1.5, 10.0)}),
    "slicing": Home("placers.slicing", {"max_load": Cost(1.5, 14.0, most_parts=100_000)}),
    "pipedream": Home("placers.pipedream", {"max_load": Cost(2.0, 3.0)}),
    "getf": Home("placers.getf"),
    "metis": Home("placers.partitioners"),
    "scotch": Home("placers.partitioners"),
    "layer-paths": Home(
        "decomposition.layer_paths", {"makespan": Cost(20.0, 800.0, most_parts=8_000)}
    ),
    "m-sct": Home("placers.m_sct", {"makespan": Cost(200.0, 60.0)}),
    "mt-kahypar": Home("placers.partitioners"),
    "simulated-moves": Home(
        "placers.pipeline_stages", {"pipeline_iteration": Cost(20.0, 80.0, most_parts=4_000)}
    ),
    "heaviest-stage": Home("placers.pipeline_stages", {"pipeline_iteration": Cost(1000.0, 100.0)}),
    "expert": Home("placers.baselines"),
    "annealing": Home("local_search.annealing"),
    "disjunctive-search": Home("local_search.disjunctive_search"),
    "run-moves": Home("local_search.run_moves"),
    "fd-dps": Home("placers.dynamic_critical_path"),
    "memory-knapsack": Home("bounds.memory_knapsack"),
    "exo": Home("placers.layer_splits"),
    "llama-cpp": Home("placers.layer_splits"),
    "vllm-even": Home("placers.layer_splits"),
    "sglang-even": Home("placers.layer_splits"),
    "equal-split": Home("hybrid.placers", {"hybrid_pipeline": Cost(20.0, 500.0, always=True)}),
    "piper": Home("hybrid.placers"),
    "alpa": Home("placers.pipeline_stages"),
    "llama-fit": Home("placers.serving_fits"),
    "ik-llama-fit": Home("placers.serving_fits"),
    "halda": Home("placers.serving_fits"),
    "parallax": Home("placers.serving_fits"),
    "m-topo-fill": Home("placers.celeritas"),
    "repeated-layers": Home("repeated_layers.repeated_layers"),
    "petals": Home("serving_flow.rules"),
    "swarm": Home("serving_flow.rules"),
    "flow-row": Home("serving_flow.search"),
    "flow-blocks": Home("serving_flow.search"),
    "flow-moves": Home("serving_flow.search"),
    "getf-lp": Home("models.lp_bounds"),
    "m-sct-lp": Home("models.lp_bounds"),
    "archer-combinatorial": Home("models.archer"),
    "flow-prices": Home("serving_flow.search"),
}

if has_research():
    HOMES["hrl"] = Home("placegap.experiments.research.learned.methods")
    HOMES["placeto"] = Home("placegap.experiments.research.learned.methods")
