"""mt-kahypar: a k-way hypergraph partition by Mt-KaHyPar (extra ``kahypar``), placed by load."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from pydantic import Field

from placegap.instances.problem.array_types import Ints
from placegap.solvers.core.method import Cost, Method, Params, Task, why_not_installed
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.partitioners import (
    Parting,
    place_parts,
    why_not_parts,
)


class MtKahyparParams(Params):
    """Parameters of ``mt-kahypar``.

    Attributes
    ----------
    imbalance : float
        A part may be heavier than its share by this fraction (``epsilon``).
    """

    imbalance: float = Field(default=0.03, gt=0, lt=1)


def mt_kahypar(task: Task, params: MtKahyparParams) -> Outcome:
    """Partition the hypergraph of the tensors by Mt-KaHyPar, and place the parts by load.

    Gottesbueren, Heuer, Maas, Sanders, Schlag, "Scalable high-quality hypergraph partitioning"
    (ACM Trans. Algorithms 20, 2024), with the objective km1: sum over nets of weight x (parts - 1).
    Nets are those of `instances.problem.nets`: a tensor's pins are its producer and its
    consumers, so that a tensor is paid once per part that it reaches and not per edge, which is
    what max_load counts but for the producer's side. A heuristic: it minimizes the sum over the
    devices, balances compute alone, and sees no direction. The deterministic preset on one thread.
    Filled in: limits of parts by the devices' speeds, parts to devices heaviest first, and the
    repair of `part_mending` for memory and support; ops that no accelerator runs go to a host by
    it.
    """
    return place_parts(task, lambda parting: _partition(parting, params.imbalance))


@cache
def _package() -> tuple[Any, Any]:
    """The package and its one pool of threads: it can be opened once in a process."""
    package = import_module("mtkahypar")
    return package, package.initialize(1)


def _partition(parting: Parting, imbalance: float) -> Ints:
    package, pool = _package()
    context = pool.context_from_preset(package.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(parting.num_parts, imbalance, package.Objective.KM1)
    context.logging = False
    # where devices differ: each part's limit, which no single vertex may exceed either
    limit = np.ceil(parting.share * parting.weight.sum() * (1 + imbalance)).astype(np.int64)
    if parting.share.max() > parting.share.min():
        context.set_individual_target_block_weights(
            np.maximum(limit, parting.weight.max()).tolist()
        )
    package.set_seed(parting.seed % 2**31)
    nets = np.split(parting.nets.pin, parting.nets.net_ptr[1:-1]) if parting.nets.num_nets else []
    hypergraph = pool.create_hypergraph(
        context,
        len(parting.weight),
        len(nets),
        [pins.tolist() for pins in nets],
        parting.weight.tolist(),
        parting.net_weights().tolist(),
    )
    return np.array(hypergraph.partition(context).get_partition(), np.int64)


def missing() -> str | None:
    """How to install Mt-KaHyPar's package, or None."""
    return why_not_installed("mtkahypar", "kahypar")


register(
    Method(
        name="mt-kahypar",
        claim="heuristic",
        objectives=("makespan", "max_load", "max_load_fwd_bwd"),
        scope="makespan, loads, any plans",
        paper="Gottesbüren et al. 2024",
        cites=("gottesbueren2024",),
        summary="hypergraph partitioner, where installed",
        starts={
            "makespan": Cost(7.0, 35.0, most_parts=100_000),
            "max_load": Cost(7.0, 35.0, most_parts=100_000),
        },
        run=mt_kahypar,
        params=MtKahyparParams,
        applies=why_not_parts,
        missing=missing,
        packages=("mtkahypar",),
    )
)
