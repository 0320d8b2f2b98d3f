"""Optimization models of the papers, built from an instance.

Each has `build`, and most have `warm_start` (a plan into the model) and `extract` (a plan out of
it):

    model = NAME.build(instance, semantics, form=..., horizon_ns=..., symmetry=...)
    NAME.warm_start(model, instance, plan)
    plan = NAME.extract(model, instance)

What a model does not have is refused by name, and so is `extract` where there is no solution. A
`build` reads as the table of contents of its model: one function per family of rows, each of which
adds components named like itself and says its inequality, with the paper's number where it has one.

====================  =======================================================  ====================
`moirai`              placements, orders of ops and of flows                   makespan, per edge
`pesto`               the same, for links                                      makespan, link
`getf`, `m_sct`       relaxations: an LP over groups of devices, an LP for     makespan
                      the favourite child of each op
`makespan_cp`         every channel and transfer model, for CP-SAT             makespan
`sections`            an LP for a part of a graph between two cuts             makespan
`throughput_ip`       contiguous plans, chains, replicas, servers              max_load
`archer`              chains: exact for equal devices                          max_load chain
`latency_ip`          uninterrupted calls of accelerators, and `cp` of it      latency_subgraphs
====================  =======================================================  ====================

`shared` has what several of them use: `families` of rows, `cp_families` for CP-SAT, `devices` that
belong together, `pairs` of ops that no path orders, and `times` with their units and windows.
"""

import lazy_loader

# A model is loaded when its name is first used: those for CP-SAT need no Pyomo.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
