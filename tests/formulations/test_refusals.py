"""A model that does not state a semantics refuses it in one line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from placegap.formulations import archer, latency_ip, moirai, pesto, throughput_ip
from placegap.instances import (
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    Semantics,
    example,
)

ARCHER = "states max_load chain"
PUBLISHED = "port per_edge as published, not makespan free"
REFUSED: list[tuple[Callable[..., object], Semantics, str | None, str]] = [
    (moirai.build, Makespan(transfers="per_tensor"), None, "makespan port per_tensor"),
    (moirai.build, MaxLoad(plans="any"), None, "max_load any"),
    (moirai.build, Makespan(channels="free"), "as_published", PUBLISHED),
    (moirai.build, Makespan(), "published", "no form 'published'; did you mean 'as_published'"),
    (pesto.build, Makespan(channels="link"), "verbatim", "no form 'verbatim'; choose from as_publ"),
    (latency_ip.build, LatencySubgraphs(), "strong", "no form 'strong'"),
    (pesto.build, Makespan(channels="port"), None, "makespan port per_edge"),
    (pesto.build, Makespan(channels="link", transfers="per_tensor"), None, "link per_tensor"),
    (latency_ip.build, Makespan(), None, "makespan port per_edge"),
    (archer.build_exact, Makespan(), None, ARCHER),
    (archer.build_exact, MaxLoad(plans="convex"), None, ARCHER),
    (archer.build_exact, MaxLoad(plans="chain", replicas=True), None, ARCHER),
    (archer.build_exact, MaxLoad(plans="chain", levels=2), None, ARCHER),
    (archer.build_exact, MaxLoadFwdBwd(plans="chain"), None, ARCHER),
    (
        throughput_ip.build,
        MaxLoad(plans="any"),
        "chian",
        "no contiguity 'chian'; did you mean 'chain'",
    ),
    (throughput_ip.build, Makespan(), None, "not makespan"),
    (throughput_ip.build, LatencySubgraphs(), None, "not latency_subgraphs"),
    (throughput_ip.build, MaxLoad(plans="chain"), "convex", "states plans convex, not"),
    (throughput_ip.build, MaxLoad(plans="any"), "chain", "states plans chain, not max_load any"),
    (throughput_ip.build, MaxLoad(plans="any", levels=2), None, "has none"),
]
"""What is built, under which semantics, with which form or class of plans, and the message."""


@pytest.mark.parametrize(("build", "semantics", "form", "why"), REFUSED)
def test_other_semantics_are_refused(
    build: Callable[..., object], semantics: Semantics, form: str | None, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        build(example(), semantics, *([] if form is None else [form]))
