"""What users are told where a method or a limit does not apply: each sentence stands here, once."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from doubles.refusals import Refusals, each_refusal, is_refused
from draws import draw
from draws.pipelines import pipeline_instance
from draws.tiny import tiny_instance
from features import makespan

from placegap.instances import (
    Device,
    Instance,
    Makespan,
    MaxContext,
    MaxLoad,
    Op,
    PipelineIteration,
    Semantics,
    example,
)
from placegap.instances.referee.evaluate import check_semantics
from placegap.solvers import Limits, Method, run_method
from placegap.solvers.core.registry import GONE, Registry, find_method, register
from placegap.solvers.core.registry import method as register_as
from placegap.solvers.models.export import write_model
from placegap.solvers.solving.coarsened import solve_coarse
from placegap.solvers.solving.tensor_split import best_tensor_plan

ANY, CHAIN, CONVEX = (MaxLoad(plans=plans) for plans in ("any", "chain", "convex"))
REPLICAS, SERVERS = MaxLoad(replicas=True), MaxLoad(levels=2)
FREE, PORT = Makespan(channels="free"), Makespan()
ROUNDS = PipelineIteration(schedule="interleaved", stages_per_device=2)


def run(
    _: Path, method: str, semantics: Semantics, instance: Instance, params: Mapping[str, Any]
) -> object:
    return run_method(instance, semantics, method, params)


def row(*times: int, weight: int = 0) -> Instance:
    """Ops in a row on a device of each of two kinds; the first one has weights."""
    ops = [Op(name=f"op{i}", time_ns={"x": t, "y": 2 * t}) for i, t in enumerate(times)]
    ops[0] = ops[0].model_copy(update={"parameter_bytes": weight})
    return draw.row(ops, draw.devices("xx" if weight else "xy"), bytes=1)


def on(*devices: Device) -> Instance:
    ops = (Op(name="a", time_ns={"gpu": 1, "cpu": 2, "tpu": 3}),)
    return draw.instance_of("one", ops, (), devices)


GPU, TPU = (Device(name=kind, kind=kind) for kind in ("gpu", "tpu"))
HOST = Device(name="cpu", kind="cpu", is_host=True)
PINNED = makespan.instance(
    "pinned", [makespan.pinned("a", 0, 1), makespan.pinned("b", 1, 1)], []
)  # each op runs on another device, so that their speeds do not compare

METHODS = Refusals(
    "",
    run,
    [
        ("no-such-method", PORT, example(), {}, "no method…'placegap methods' lists them"),
        ("heft", PORT, example(), {"colour": "red"}, "colour"),
        ("heft", CHAIN, example(), {}, "does not do max_load"),
        ("getf-lp", ANY, example(), {}, "does not do max_load"),
        ("getf-lp", PORT, PINNED, {"groups": "speeds"}, "use groups=auto"),
        ("expert", ANY, example(), {}, "needs --param path=FILE"),
        ("expert", ANY, example(), {"path": "nowhere.json"}, "nowhere.json"),
        ("ideal-dp", CHAIN, row(2**58, 2**58), {}, "64 bits: times or bytes"),
        (
            "ideal-dp",
            MaxLoad(plans="chain", replicas=True),
            row(1, 1, weight=2**50),
            {},
            "64 bits: times, parameters or bandwidths",
        ),
        ("ideal-dp", MaxLoad(plans="chain", levels=2), row(1, 1), {}, "has none"),
        ("ideal-dp", CONVEX, example(), {}, "chain"),
        ("moirai", PORT, example(), {"solver": "glpk"}, "solver"),
        ("moirai", Makespan(transfers="per_tensor"), example(), {}, "states makespan per_edge"),
        ("pesto", PORT, example(), {}, "makespan port per_edge"),
        ("moirai", FREE, example(), {"form": "as_published"}, "published, not makespan free"),
        ("archer-combinatorial", CONVEX, example(), {}, "states max_load chain"),
        (
            "archer-exact",
            MaxLoad(plans="chain", replicas=True),
            example(),
            {},
            "states max_load chain",
        ),
        ("archer-exact", CHAIN, on(GPU, HOST), {}, "no host"),
        ("archer-exact", CHAIN, on(GPU, TPU), {}, "times differ"),
        ("data-parallel", FREE, example(), {}, "which no op states (axis_sizes): --param batch=N"),
        ("fd-dps", FREE, example(), {"axes": "depth"}, "axes"),
        ("metis", CHAIN, example(), {}, "neither convex nor chains: not max_load chain add"),
        ("heaviest-stage", ROUNDS, pipeline_instance(3), {}, "one stage for each device"),
        ("alpa", ROUNDS, pipeline_instance(3), {}, "one stage for each device"),
    ],
)

BRUTE_FORCE = Refusals(
    "",
    lambda _, semantics, shape: run_method(tiny_instance(0, **shape), semantics, "brute-force"),
    [
        (PORT, {"num_ops": 9}, "at most 8 ops, not 9"),
        (PORT, {"num_ops": 8, "density": 1.0}, "at most 10 transfers"),
        (ANY, {"num_ops": 11}, "at most 10 ops, not 11"),
        (ANY, {"num_ops": 10, "num_devices": 5}, "placements"),
        (REPLICAS, {"num_ops": 8}, "at most 7 ops"),
        (REPLICAS, {"num_devices": 5}, "4 devices, not 5"),
        (SERVERS, {}, "has none"),
    ],
)

LIMITS = Refusals(
    "",
    lambda _, limits: Limits(**limits),
    [
        ({"time_limit_s": float("nan")}, "time_limit_s must be at least 0"),
        ({"time_limit_s": "5m"}, "time_limit_s must be at least 0 or None, not '5m'"),
        ({"time_limit_s": Decimal("NaN")}, "time_limit_s must be at least 0"),
        ({"gap": 1.0}, "gap must be at least 0 and below 1"),
        ({"gap": None}, "gap must be at least 0 and below 1, not None"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)


def write(folder: Path, method: str, semantics: Semantics, name: str) -> object:
    return write_model(example(), semantics, method, {}, folder / name)


MODELS = Refusals(
    "",
    write,
    [
        ("moirai", PORT, "model.txt", "does not end in .mps or .lp"),
        ("moirai", PORT, "model.gz", "does not end in .mps or .lp"),
        ("moirai", PORT, "none/a.mps", "a.mps: cannot be written"),
        ("heft", PORT, "a.mps", "heft has no MIP model …moirai"),
        ("throughput-ip", PORT, "a.mps", "does not do makespan"),
    ],
)


def coarse(method: str, transform: str) -> object:
    return solve_coarse(example(), FREE, method, transform=transform)


def cite(cites: str) -> object:
    return register_as("some", objectives=("makespan",), cites=cites)(lambda task, params: None)


def heft_of_a_user() -> None:
    """Another method of that name, before placegap's own is loaded."""
    Registry().add(Method(**{**vars(find_method("heft")), "run": lambda task, params: None}))


def measured_layers() -> object:
    ops = [Op(name=f"layers.{n}", module=f"layers.{n}", time_ns={"gpu": 9}) for n in range(2)]
    links = draw.links(2, lambda a, b: (10**9, 0))
    instance = draw.instance_of("net", ops, (), draw.devices(["gpu"] * 2), links)
    return best_tensor_plan(instance, PORT, "layer", 9.0)


OTHERS = Refusals(
    "",
    lambda _, call, *given: call(*given),
    [
        (find_method, "magic", "no method 'magic'; 'placegap methods' lists them"),
        *((find_method, name, f"there is no method '{name}' any more: ") for name in GONE),
        *(
            (cite, cites, f"'{cites}' cites no paper; name an author and a year")
            for cites in ("Kahn", "1962", "kahn1962")
        ),
        (lambda: register(find_method("heft")), "'heft' is taken"),
        (heft_of_a_user, "'heft' is taken"),
        (measured_layers, "leave out --tensor-split"),
        (check_semantics, example(), MaxContext(plans="any"), "no op has a cache"),
        (coarse, "melt", "co-placement", "there is no method 'melt'"),
        (coarse, "heft", "melt", "there is no transform 'melt'"),
    ],
)


@pytest.mark.parametrize(
    ("table", "given", "sentence"), each_refusal([METHODS, BRUTE_FORCE, LIMITS, MODELS, OTHERS])
)
def test_a_refusal_is_one_line_that_says_what_is_missing(
    table: Refusals, given: list[Any], sentence: str, tmp_path: Path
) -> None:
    is_refused(table, given, sentence, tmp_path)
