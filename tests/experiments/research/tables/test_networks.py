"""The table of networks: placement matters for each, as its recipe says."""

from __future__ import annotations

import pytest

from placegap.experiments.research.tables.networks import (
    network_figures,
    own_semantics,
)
from placegap.experiments.research.workloads.build import network_recipes
from placegap.instances.corpus.corpus import NETWORK_FAMILY, corpus_names, known_of, load_corpus


@pytest.mark.parametrize("name", corpus_names(NETWORK_FAMILY))
def test_memory_binds_or_a_pipeline_gains_less_than_its_devices(name: str) -> None:
    instance = load_corpus(name).instance()
    figures = network_figures(instance)
    if network_recipes()[name].binds == "memory":
        assert not figures.fits_one
        assert 0.6 <= figures.share <= 0.95
        return
    (best,) = known_of(instance, own_semantics(instance))
    assert figures.fits_one
    assert best.value_ns is not None
    # more than one device pays, and yet no pipeline is as fast as its devices together
    assert 1.3 < figures.one_device_ns / best.value_ns < len(instance.cluster.devices)
    assert figures.ccr > 1


def test_one_device_is_the_fastest_one() -> None:
    # the host of Tarnawski's cluster runs all ops, too, but slowly
    instance = load_corpus("gnmt-layers").instance()
    total_ns = sum(op.time_ns["P100-16GB-PCIe"] for op in instance.graph.ops)
    assert network_figures(instance).one_device_ns == total_ns
