"""What times were fitted to, and what of a model and its cards lies outside of that."""

import pytest

from placegap.instances import Cluster, Device, Graph, Instance, Op
from placegap.instances.costing.costing import cost_graph, costed
from placegap.instances.costing.fitted import fitted_costs, kind_of_model
from placegap.instances.problem import Provenance

WEIGHTS = {"flops": 2_000, "bytes_moved": 1_200, "parameter_bytes": 1_000}


def op(name: str, module: str, **more: object) -> Op:
    return Op(name=name, module=module, **{**WEIGHTS, **more})  # type: ignore[arg-type]


MLP = op("mlp", "h.0.mlp")
EXPERTS = op("experts", "h.0.mlp.experts")
STATE = op("state", "h.0.mixer", parameter_bytes=0, state_bytes=100)
CACHE = op(
    "sdpa", "h.0.attn", kind="scaled_dot_product_attention", parameter_bytes=0, state_bytes=100
)
LATENT = op("down", "h.0.attn.kv_a_proj_with_mqa")


def step(*ops: Op, decode: bool = True) -> Graph:
    return Graph(name="g", ops=ops, provenance=Provenance(parameters={"decode": decode}))


def on(graph: Graph, *kinds: str) -> Instance:
    devices = tuple(Device(name=kind, kind=kind) for kind in kinds)
    cluster = Cluster(name="c", devices=devices)
    return Instance(name="i", graph=costed(graph, cluster), cluster=cluster)


@pytest.mark.parametrize(
    ("ops", "kind"),
    [
        ((MLP, CACHE), "dense"),
        ((EXPERTS, CACHE), "moe"),
        ((MLP, STATE, CACHE), "recurrent"),
        ((EXPERTS, STATE), "moe-recurrent"),
        ((EXPERTS, LATENT), "latent"),
    ],
)
def test_the_kind_of_a_model_is_read_off_its_ops(ops: tuple[Op, ...], kind: str) -> None:
    assert kind_of_model(step(*ops)) == kind
    assert kind_of_model(step(*ops, decode=False)) == "prompts and training"


def test_cards_and_models_among_the_measured_ones_are_inside() -> None:
    found = fitted_costs(on(step(MLP), "RTX3090"))
    assert found is not None
    assert (found.source, found.factor, found.outside) == ("calibrated", 1.13, None)
    assert found.fitted is not None
    assert "29 pairs" in found.fitted
    assert len(found.lines) == 1


@pytest.mark.parametrize(
    ("graph", "kinds", "outside"),
    [
        (step(MLP), ("RTX3090", "H100-80GB"), "H100-80GB"),
        (step(LATENT), ("RTX3090",), "latent models"),
        (step(LATENT), ("T4",), "T4 or of latent models"),
        (step(MLP, decode=False), ("RTX3090",), "prompts and training"),
    ],
)
def test_what_no_measurement_is_behind_is_said(
    graph: Graph, kinds: tuple[str, ...], outside: str
) -> None:
    found = fitted_costs(on(graph, *kinds))
    assert found is not None
    assert found.lines[1] == f"no measurement of {outside} is behind these times"


def test_the_least_sure_kind_decides() -> None:
    found = fitted_costs(on(step(EXPERTS), "RTX3090", "RX7900XTX"))
    assert found is not None
    assert (found.factor, found.outside) == (1.41, None)


def test_rooflines_and_stated_times_are_fitted_to_nothing() -> None:
    cluster = Cluster(name="c", devices=(Device(name="d", kind="RTX3090"),))
    roofline = cost_graph(step(MLP), cluster)
    assert fitted_costs(Instance(name="i", graph=roofline, cluster=cluster)) is None
    stated = step(MLP.model_copy(update={"time_ns": {"RTX3090": 5}}))
    assert fitted_costs(on(stated, "RTX3090")) is None
