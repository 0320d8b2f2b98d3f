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
    sections,
    throughput_ip,
)
from placegap.formulations.latency_ip import cp
from placegap.instances import (
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
LINK = Makespan(channels="link")
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
        (
            partial(moirai.build, form="as_published"),
            Makespan(channels="free"),
            "published, not makespan free",
        ),
        (partial(moirai.build, form="published"), Makespan(), "did you mean 'as_published'"),
        (
            partial(moirai.build, form="verbatim", symmetry=True),
            Makespan(),
            "form=verbatim, has no symmetry",
        ),
        (partial(pesto.build, form="verbatim"), LINK, "'verbatim'; choose from as_publ"),
        (partial(pesto.build, symmetry=True), LINK, "Pesto's model, form=strengthened, has no sym"),
        (partial(latency_ip.build, form="strong"), LatencySubgraphs(), "no form 'strong'"),
        (
            partial(latency_ip.build, form="as_published", symmetry=True),
            LatencySubgraphs(),
            "form=as_published, has no symmetry",
        ),
        (
            partial(latency_ip.build, form="as_published", bound_ns=1),
            LatencySubgraphs(),
            "has no bound_ns",
        ),
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
        (sections.build, CHAIN, "the section LP states makespan, not max_load chain"),
        (
            partial(m_sct.build, form="cut"),
            Makespan(),
            "no form 'cut'; choose from as_published, tr",
        ),
        (partial(throughput_ip.build, form="server"), CHAIN, "no form 'server'; did you mean"),
        (throughput_ip.build, Makespan(), "not makespan"),
        (throughput_ip.build, LatencySubgraphs(), "not latency_subgraphs"),
        (partial(throughput_ip.build, form="replicas"), CHAIN, "form=plain for max_load chain"),
        (throughput_ip.build, MaxLoad(plans="any", levels=2), "has none"),
        (cp.build, Makespan(), "latency_subgraphs, not makespan"),
        (makespan_cp.build, LatencySubgraphs(), "makespan, not latency_subgraphs"),
        (  # a horizon of centuries
            partial(makespan_cp.build, horizon_ns=2**60),
            Makespan(),
            "above 2",
        ),
    ],
    ValueError,
)


def uneven_links() -> Instance:
    """An op on seven equal devices, one link of which is slower than the others."""
    links = draw.links(7, lambda a, b: (10**8 if (a, b) == (0, 1) else 10**9, 0))
    op = Op(name="a", time_ns={"gpu": 1})
    return draw.instance_of("one", [op], (), draw.devices(["gpu"] * 7), links)


INSTANCES = Refusals(
    "",
    lambda _, build, *given: build(*given),
    [
        (
            throughput_ip.build,
            uneven_links(),
            MaxLoad(plans="any", replicas=True),
            "at most 6 equal devices",
        )
    ],
    ValueError,
)


@pytest.mark.parametrize(("table", "given", "sentence"), each_refusal([SEMANTICS, INSTANCES]))
def test_what_a_model_does_not_state_is_one_line(
    table: Refusals, given: list[Any], sentence: str, tmp_path: Path
) -> None:
    is_refused(table, given, sentence, tmp_path)
