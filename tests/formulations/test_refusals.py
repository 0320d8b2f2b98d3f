"""What a model refuses to state: one line, and each sentence of this room stands here, once."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from doubles.refusals import Refusals, each_refusal, is_refused
from draws import draw

from placegap.formulations import (
    archer,
    getf,
    latency_ip,
    m_sct,
    makespan_cp,
    moirai,
    pesto,
    throughput_ip,
)
from placegap.instances import (
    Edge,
    Instance,
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    Op,
    Plan,
    example,
)

CHAIN = MaxLoad(plans="chain")
ARCHER = "states max_load chain"


def refused_start(model: ModuleType) -> Callable[[Instance], None]:
    """Gives a plan to a model that starts from none."""

    def start(instance: Instance) -> None:
        model.warm_start(model.build(instance, Makespan()), instance, Plan.on([0] * 4))

    return start


SEMANTICS = Refusals(
    "",
    lambda _, build, *given: build(example(), *given),
    [
        (moirai.build, Makespan(transfers="per_tensor"), "makespan port per_tensor"),
        (moirai.build, MaxLoad(plans="any"), "max_load any"),
        (moirai.build, Makespan(channels="free"), "as_published", "published, not makespan free"),
        (moirai.build, Makespan(), "published", "no form 'published'; did you mean 'as_published'"),
        (pesto.build, Makespan(channels="link"), "verbatim", "'verbatim'; choose from as_publ"),
        (latency_ip.build, LatencySubgraphs(), "strong", "no form 'strong'"),
        (pesto.build, Makespan(channels="port"), "makespan port per_edge"),
        (pesto.build, Makespan(channels="link", transfers="per_tensor"), "link per_tensor"),
        (latency_ip.build, Makespan(), "makespan port per_edge"),
        (archer.build, Makespan(), ARCHER),
        (archer.build, MaxLoad(plans="convex"), ARCHER),
        (archer.build, MaxLoad(plans="chain", replicas=True), ARCHER),
        (archer.build, MaxLoad(plans="chain", levels=2), ARCHER),
        (archer.build, MaxLoadFwdBwd(plans="chain"), ARCHER),
        (partial(archer.build, num_blocks=0), CHAIN, "at least one block"),
        (refused_start(getf), "GETF's LP has no warm start"),
        (refused_start(m_sct), "m-SCT's LP has no warm start"),
        (getf.build, CHAIN, "GETF's LP states makespan, not max_load chain"),
        (m_sct.build, CHAIN, "m-SCT's LP states makespan, not max_load chain"),
        (
            partial(m_sct.build, form="cut"),
            Makespan(),
            "no form 'cut'; choose from as_published, tr",
        ),
        (throughput_ip.build, MaxLoad(plans="any"), "chian", "'chian'; did you mean 'chain'"),
        (throughput_ip.build, Makespan(), "not makespan"),
        (throughput_ip.build, LatencySubgraphs(), "not latency_subgraphs"),
        (throughput_ip.build, CHAIN, "convex", "states plans convex, not"),
        (throughput_ip.build, MaxLoad(plans="any"), "chain", "plans chain, not max_load any"),
        (throughput_ip.build, MaxLoad(plans="any", levels=2), "has none"),
        (makespan_cp.build, Makespan(), 2**60, "above 2"),  # a horizon of centuries
    ],
    ValueError,
)


def uneven_links() -> Instance:
    """An op on seven equal devices, one link of which is slower than the others."""
    links = draw.links(7, lambda a, b: (10**8 if (a, b) == (0, 1) else 10**9, 0))
    op = Op(name="a", time_ns={"gpu": 1})
    return draw.instance_of("one", [op], (), draw.devices(["gpu"] * 7), links)


def one_name_twice() -> Instance:
    """Op "a -> b" feeds c, and a feeds "b -> c": both edges are "a -> b -> c", of tensor "t"."""
    ops = tuple(Op(name=n, time_ns={"gpu": 1}) for n in ("a", "b -> c", "a -> b", "c"))
    edges = (
        Edge(producer="a -> b", consumer="c", bytes=1, tensor="t"),
        Edge(producer="a", consumer="b -> c", bytes=1, tensor="t"),
    )
    links = draw.links(2, lambda a, b: (10**9, 0))
    return draw.instance_of("names", ops, edges, draw.devices(["gpu"] * 2), links)


INSTANCES = Refusals(
    "",
    lambda _, build, *given: build(*given),
    [
        (
            throughput_ip.build,
            uneven_links(),
            MaxLoad(plans="any", replicas=True),
            "at most 6 equal devices",
        ),
        (lambda: moirai.build(one_name_twice(), Makespan(), names=True), "indices have one name"),
    ],
    ValueError,
)


@pytest.mark.parametrize(("table", "given", "sentence"), each_refusal([SEMANTICS, INSTANCES]))
def test_what_a_model_does_not_state_is_one_line(
    table: Refusals, given: list[Any], sentence: str, tmp_path: Path
) -> None:
    is_refused(table, given, sentence, tmp_path)
