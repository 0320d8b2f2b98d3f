"""What pages say of plans and graphs beyond the cells of tables, found again."""

from __future__ import annotations

from functools import lru_cache

import pytest

from placegap.experiments.research.graph_figures import deviation_figure
from placegap.experiments.running.sources import Source, load_source
from placegap.instances import Instance, Makespan, MaxLoad, Plan
from placegap.solvers.solving.run_method import run_method

GRADIENT = "gradients/"


@lru_cache
def planned(name: str, cluster: str, method: str, memory: str) -> tuple[Instance, Plan]:
    instance = load_source(Source(name, cluster))
    plan = run_method(instance, Makespan(memory=memory), method=method).plan  # type: ignore[arg-type]
    assert plan is not None
    return instance, plan


def sent_bytes(instance: Instance, plan: Plan) -> tuple[int, int]:
    """What goes between devices, and how much of it from the forward to the backward pass."""
    names, devices = [op.name for op in instance.graph.ops], plan.placement
    sent = [
        (edge.bytes, GRADIENT in names[head] and GRADIENT not in names[tail])
        for edge in instance.graph.edges
        if devices[tail := instance.graph.op_index[edge.producer]]
        != devices[head := instance.graph.op_index[edge.consumer]]
    ]
    return sum(size for size, _ in sent), sum(size for size, is_back in sent if is_back)


@pytest.mark.parametrize("memory", ["sum", pytest.param("peak", marks=pytest.mark.deep)])
def test_metis_sends_little_and_hardly_any_activations_to_the_backward_pass(memory: str) -> None:
    # docs/papers/celeritas.md, table 3 by both rules, on Tensor Holography
    holography = ("celeritas:holography", "celeritas-4xV100-pcie")
    metis, metis_back = sent_bytes(*planned(*holography, "metis", memory))
    assert metis_back < metis / 10_000  # a 13,000th
    for method in ("order-place", "m-topo"):
        sent, back = sent_bytes(*planned(*holography, method, memory))
        assert back > sent / 2
        assert sent > 2 * metis


@pytest.mark.deep
def test_mp_dps_sends_less_than_fd_dps_where_no_op_is_split() -> None:
    # docs/papers/fd-dps.md, table 5, on ResNet_50 with four GPUs
    resnet = ("fd-dps:resnet-50", "4xP100-pcie")
    merged, _ = sent_bytes(*planned(*resnet, "mp-dps", "sum"))
    single, _ = sent_bytes(*planned(*resnet, "fd-dps", "sum"))
    assert merged < single


def test_pipedream_has_the_published_load_of_bert_24_with_blocks_for_layers() -> None:
    # docs/papers/tarnawski.md, max-load: 17.78990625 ms, as the authors' program prints it
    instance = load_source(Source("bert24_inference"))
    rules = MaxLoad(plans="chain")
    found = run_method(instance, rules, method="pipedream", params={"layers": "blocks"})
    assert found.value_ns == 17_789_906


NET = Source("celeritas:holography", "celeritas-4xV100-pcie")


def test_bytes_grow_by_a_line_and_rooflines_nearly_so() -> None:
    # every tensor has a factor of the batch, or none; rounding up costs a ns per op at most
    assert deviation_figure(NET, "memory") == 0
    assert deviation_figure(NET, "time") < 0.1
    assert deviation_figure(NET, "time, exact") > 99
