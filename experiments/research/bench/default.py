"""The default beside the exact method that proves most: what each proves, and for how much work.

``python -m placegap.experiments.research.bench.default`` prints the table, with ``--cores`` on so
many cores and with ``--busy N`` beside N busy loops. CPU seconds are those of all processes,
after a small run that loads the kernels. `auto` may take 1.5 times those of the method alone, and a
second.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from placegap.experiments.research.bench.measuring import ExactRow, apart, measure
from placegap.experiments.running.sources import Source, load_source
from placegap.instances import example
from placegap.instances.problem import (
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    PipelineIteration,
    Semantics,
)
from placegap.instances.problem.modules import Granularity, with_granularity
from placegap.solvers.core.method import Task
from placegap.solvers.core.objective import strategy

LIMIT_S = 20.0
FACTOR, MORE_S = 1.5, 1.0  # what `auto` may take of the CPU time of the method alone

V100, UNLIKE = "celeritas-4xV100-pcie", "moirai-inter-server"
PORT, PEAK = Makespan(channels="port"), Makespan(channels="port", memory="peak")
ANY = MaxLoad(plans="any")
CHAIN, CHAIN_PEAK = MaxLoad(plans="chain"), MaxLoad(plans="chain", memory="peak")


@dataclass(frozen=True)
class DefaultCase:
    """A graph of the corpus on a cluster, and the objective."""

    model: str
    cluster: str | None
    semantics: Semantics
    granularity: Granularity = "op"

    @property
    def prover(self) -> str:
        """The exact method that settles most such problems."""
        return strategy(Task(example(), self.semantics)).provers[0].method

    @property
    def name(self) -> str:
        """The default, model, cluster, semantics and what stays together."""
        whole = "" if self.granularity == "op" else self.granularity
        words = ("auto", self.model, self.cluster or "", self.semantics.label, whole)
        return " ".join(filter(None, words))


CASES = (
    *(DefaultCase(model, V100, PORT) for model in ("inception_v1", "inception_v2", "squeezenet")),
    *(
        DefaultCase(model, V100, PORT)
        for model in ("shufflenet", "resnet50", "densenet121", "vgg19")
    ),
    *(
        DefaultCase(model, UNLIKE, PORT)
        for model in ("inception_v1", "squeezenet", "resnet50", "vgg19")
    ),
    DefaultCase("resnet50", "2xT4-pcie", PEAK),
    DefaultCase("bert-large", V100, PEAK),
    DefaultCase("gpt2-xl", "8xH100-nvlink", CHAIN),
    *(DefaultCase(model, V100, CHAIN) for model in ("bert-large", "resnet50-train", "densenet121")),
    DefaultCase("llama-70b", "8xH100-nvlink", CHAIN_PEAK),
    DefaultCase("llama-70b", "8xH100-nvlink", CHAIN_PEAK, "layer"),
    DefaultCase("mixtral-8x7b", "8xH100-nvlink", CHAIN_PEAK, "layer"),
    DefaultCase("gpt3-13b", "2x8-A100-infiniband", CHAIN_PEAK),
    DefaultCase("gpt3-13b", "2x8-A100-infiniband", CHAIN_PEAK, "layer"),
    DefaultCase("llama-7b", "2xT4-pcie", CHAIN_PEAK, "layer"),
    DefaultCase("llama-7b", UNLIKE, CHAIN_PEAK, "layer"),
    DefaultCase("gpt2-train", V100, CHAIN_PEAK),
    DefaultCase("inception_v2", V100, CHAIN),
    *(DefaultCase(model, None, CHAIN) for model in ("bert24_training", "inceptionv3_training")),
    *(DefaultCase(model, V100, ANY) for model in ("inception_v1", "squeezenet", "vgg19")),
    *(DefaultCase(model, None, ANY) for model in ("bert24_inference", "resnet50_inference")),
    *(
        DefaultCase(f"{model}_inference_latency", None, LatencySubgraphs())
        for model in ("bert24", "resnet50", "inceptionv3", "bert_l-3")
    ),
    DefaultCase("llama-7b-train", "4xA100-nvlink", PipelineIteration(microbatches=8), "layer"),
    *(
        DefaultCase(model, V100, PipelineIteration(microbatches=4), "layer")
        for model in ("gpt2-train", "bert-base-train")
    ),
    DefaultCase("squeezenet", V100, MaxLoad(plans="convex")),
    DefaultCase("bert24_training", None, MaxLoadFwdBwd(plans="chain")),
)


@dataclass(frozen=True)
class DefaultRow:
    """One case: the method alone, and `auto`."""

    case: DefaultCase
    alone: ExactRow
    auto: ExactRow

    @property
    def falls_behind(self) -> bool:
        """Whether `auto` does not prove what the method does, or takes too much for it."""
        if self.alone.status not in ("optimal", "infeasible"):
            return False
        most_s = FACTOR * self.alone.cpu_s + MORE_S
        return self.auto.status != self.alone.status or self.auto.cpu_s > most_s

    def __str__(self) -> str:
        gaps = [
            "-" if row.gap is None else f"{100 * row.gap:.2f} %" for row in (self.alone, self.auto)
        ]
        return (
            f"{self.case.name:71} {self.case.prover:14}"
            f" {gaps[0]:>9} {self.alone.cpu_s:7.2f} {gaps[1]:>9} {self.auto.cpu_s:7.2f}"
            f"{'  BEHIND' if self.falls_behind else ''}"
        )


HEADER = f"{'case':71} {'method':14} {'its gap':>9} {'CPU s':>7} {'of auto':>9} {'CPU s':>7}"


def default_rows(only: str = "", limit_s: float = LIMIT_S) -> Iterator[DefaultRow]:
    """Run the cases whose names contain `only`, each twice, in processes of their own."""
    cases = [case for case in CASES if only in case.name]
    for case in cases:
        methods = (case.prover, "auto")
        alone, auto = apart(methods, partial(run, case, limit_s))
        yield DefaultRow(case, alone, auto)


def run(case: DefaultCase, limit_s: float, method: str) -> ExactRow:
    """Run a method on a case in this process."""
    instance = with_granularity(load_source(Source(case.model, case.cluster)), case.granularity)
    return measure(case.name, instance, case.semantics, method, {}, limit_s)


def _spin() -> None:
    while True:
        pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the status is 1 where `auto` falls behind."""
    parser = argparse.ArgumentParser(prog="default", description=__doc__)
    parser.add_argument("--only", default="", help="run the cases whose name contains this")
    parser.add_argument("--cores", type=int, help="number of this machine's cores to use")
    parser.add_argument("--busy", type=int, default=0, help="busy loops beside the runs")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for each run")
    options = parser.parse_args(arguments)
    if options.cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    with ExitStack() as stack:
        for _ in range(options.busy):
            loop = multiprocessing.Process(target=_spin, daemon=True)
            loop.start()
            stack.callback(loop.kill)
        behind = print_rows(options.only, options.limit)
    return int(behind > 0)


def print_rows(only: str = "", limit_s: float = LIMIT_S) -> int:
    """Print the rows whose names contain `only`; how many are behind."""
    behind, number = 0, 0
    for number, row in enumerate(default_rows(only, limit_s), start=1):
        if number == 1:
            print(f"\n{HEADER}")
        print(row, flush=True)
        behind += row.falls_behind
    if number:
        print(f"{behind} of {number} rows behind")
    return behind


if __name__ == "__main__":
    sys.exit(main())
