"""Fits of tools for unlike devices: where their rules put layers and experts, by hand."""

from collections.abc import Mapping, Sequence

from draws import draw

from placegap.instances import Cluster, Device, Instance, Makespan, Op
from placegap.instances.problem import DeviceSpec
from placegap.solvers import run_method

MIB = 2**20
MARGIN = 1024
"""MiB that the fits leave free on each card."""

TIMES = {"gpu": 2, "slow": 8, "cpu": 10}


def op(name: str, mib: int) -> Op:
    return Op(name=name, module=name, time_ns=TIMES, resident_bytes=mib * MIB)


def placed(
    ops: Sequence[Op], method: str, kinds: Sequence[str], *memory: int, host: int | None = None
) -> dict[str, str]:
    """The device of each op; cards have so many MiB, and a host may be last."""
    devices = [
        Device(name=f"g{k}", kind=kind, memory_bytes=mib * MIB)
        for k, (kind, mib) in enumerate(zip(kinds, memory, strict=True))
    ]
    if host is not None:
        devices.append(Device(name="host", kind="cpu", memory_bytes=host * MIB, is_host=True))
    return devices_of(draw.row(ops, devices), method)


def devices_of(instance: Instance, method: str) -> dict[str, str]:
    plan = run_method(instance, Makespan(), method).plan
    if plan is None:
        return {}
    names = [device.name for device in instance.cluster.devices]
    return {
        one.name: names[k] for one, k in zip(instance.graph.ops, plan.devices.tolist(), strict=True)
    }


def dense(num_layers: int, mib: int) -> list[Op]:
    return [
        op(name, mib) for name in ["embed", *(f"layers.{n}" for n in range(num_layers)), "head"]
    ]


def sparse(num_layers: int) -> list[Op]:
    """Layers of 128 MiB and three matrices of experts of 256 each."""
    inner = [
        op(f"layers.{n}.{part}", mib)
        for n in range(num_layers)
        for part, mib in (
            ("attn", 128),
            *((f"experts.{name}_proj", 256) for name in ("up", "gate", "down")),
        )
    ]
    return [op("embed", 128), *inner, op("head", 128)]


def by_layer(found: Mapping[str, str], num_layers: int) -> list[str]:
    return [found["embed"], *(found[f"layers.{n}"] for n in range(num_layers)), found["head"]]


def parts(found: Mapping[str, str], n: int) -> list[str]:
    names = ("attn", "experts.up_proj", "experts.gate_proj", "experts.down_proj")
    return [found[f"layers.{n}.{name}"] for name in names]


def test_llama_cpp_keeps_its_split_by_free_memory_where_margins_allow() -> None:
    # equal cards: of 7 layers (the output is one), those below the share of 1/2 are the first 4;
    # 4 and 3 times 100 MiB are within 500
    found = placed(dense(6, 100), "llama-fit", ["gpu"] * 2, MARGIN + 500, MARGIN + 500, host=9999)
    assert by_layer(found, 6) == ["host", *["g0"] * 4, *["g1"] * 2, "g1"]


def test_llama_cpp_fills_cards_from_the_last_layer_and_the_last_card_on() -> None:
    # 3 of 100 MiB fit the last card: the output and two layers; then 2 the first one; 2 are left
    found = placed(dense(6, 100), "llama-fit", ["gpu"] * 2, MARGIN + 299, MARGIN + 300, host=9999)
    assert by_layer(found, 6) == ["host", "host", "host", "g0", "g0", "g1", "g1", "g1"]


def test_llama_cpp_brings_experts_back_from_the_first_layer_on() -> None:
    # without experts 5 x 128 = 640 MiB; those of two layers are 1,536 more, and of the 300 that are
    # left one matrix of the third layer has 256: "attention + up"
    found = placed(sparse(4), "llama-fit", ["gpu"], MARGIN + 640 + 1536 + 300, host=9999)
    assert parts(found, 0) == parts(found, 1) == ["g0"] * 4
    assert parts(found, 2) == ["g0", "g0", "host", "host"]
    assert parts(found, 3) == ["g0", "host", "host", "host"]
    assert (found["embed"], found["head"]) == ("host", "g0")


def test_what_overflows_goes_to_the_next_card() -> None:
    # all five dense parts fit the last card. The first one takes a whole layer (896) and attention,
    # up and gate of the next one (640): its down (256) is on the other card. That has 3 x 128 + 256
    # by then, and room for the experts of one more layer (768), but for no matrix of the last one's
    room = (MARGIN + 896 + 640 + 10, MARGIN + 384 + 256 + 768 + 10)
    found = placed(sparse(4), "llama-fit", ["gpu"] * 2, *room, host=9999)
    assert parts(found, 0) == ["g0"] * 4
    assert parts(found, 1) == ["g0", "g0", "g0", "g1"]
    assert parts(found, 2) == ["g1"] * 4
    assert parts(found, 3) == ["g1", "host", "host", "host"]


def test_ik_llama_cpp_drops_experts_of_the_last_layers_of_each_card() -> None:
    # shares 1/2: layers 0, 1 and 2 of the five are on the first card: 3 x 896 - 768 = 1,920; layer
    # 3 and the output are on the other one: 896 + 128 = 1,024
    found = placed(sparse(4), "ik-llama-fit", ["gpu"] * 2, MARGIN + 1920, MARGIN + 1920, host=9999)
    assert parts(found, 0) == parts(found, 1) == ["g0"] * 4
    assert parts(found, 2) == ["g0", "host", "host", "host"]
    assert (parts(found, 3), found["head"]) == (["g1"] * 4, "g1")
    # a dense model is filled as llama.cpp's fit does it
    room = (MARGIN + 299, MARGIN + 300)
    found = placed(dense(6, 100), "ik-llama-fit", ["gpu"] * 2, *room, host=9999)
    assert by_layer(found, 6) == ["host", "host", "host", "g0", "g0", "g1", "g1", "g1"]


def test_halda_fills_the_fast_machine() -> None:
    # 8 layers of 2 and 8 ns; embedding and head are with the first card, which then holds 6 layers.
    # One round: 6 x 2 + 2 x 8 = 28; two of 3 and 1: the same; four of 1 and 1: 40
    found = placed(dense(8, 100), "halda", ["gpu", "slow"], 800, 900)
    assert by_layer(found, 8) == [*["g0"] * 7, "g1", "g1", "g0"]
    # with 5 layers one round takes 5 x 2 + 3 x 8 = 34, two of 2 and 2 take 40
    found = placed(dense(8, 100), "halda", ["gpu", "slow"], 700, 900)
    assert by_layer(found, 8) == [*["g0"] * 6, *["g1"] * 3, "g0"]


def test_halda_leaves_what_a_card_cannot_hold_to_its_host() -> None:
    # 3 of 4 layers on the card: 3 x 2 + 10 = 16; two rounds with one on the card: 2 x (2 + 10)
    found = placed(dense(4, 100), "halda", ["gpu"], 300, host=999)
    assert by_layer(found, 4) == ["host", "host", "g0", "g0", "g0", "host"]


def test_halda_leaves_no_machine_without_a_layer() -> None:
    # the fast card has room for all
    found = placed(dense(4, 100), "halda", ["gpu", "slow"], 900, 900)
    assert by_layer(found, 4) == ["g0", "g0", "g0", "g0", "g1", "g0"]
    assert placed(dense(4, 100), "halda", ["gpu", "slow"], 300, 200) == {}  # 1 + 2 layers


def on_rates(num_layers: int, *cards: tuple[int, int]) -> Instance:
    """Cards of so many TFLOP/s and MiB."""
    ops = [
        Op(name=one.name, module=one.module, resident_bytes=one.resident_bytes, time_ns=times)
        for one in dense(num_layers, 100)
        for times in [{f"kind{k}": 1 for k in range(len(cards))}]
    ]
    devices = tuple(
        Device(name=f"g{k}", kind=f"kind{k}", memory_bytes=mib * MIB)
        for k, (_, mib) in enumerate(cards)
    )
    kinds = {
        f"kind{k}": DeviceSpec.model_validate(
            {
                "peak_flops_per_s": {"float16": rate * 10**12},
                "bandwidth_bytes_per_s": 10**9,
                "memory_bytes": None,
            }
        )
        for k, (rate, _) in enumerate(cards)
    }
    row = draw.row(ops, devices)
    cluster = Cluster(name="rates", devices=devices, links=row.cluster.links, kinds=kinds)
    return row.model_copy(update={"cluster": cluster})


def test_parallax_splits_layers_by_flops_as_far_as_they_fit() -> None:
    # one pipeline: 6 + 4 layers fit. The level is 8 / 3: 5.33 and 2.67 layers, 5 and 3 by the
    # largest remainder
    found = devices_of(on_rates(8, (2, 700), (1, 500)), "parallax")
    assert by_layer(found, 8) == [*["g0"] * 6, *["g1"] * 3, "g1"]
    # rates 1 and 2: the first one, of more room, has 3, the other one, of 4, no more than 4
    assert devices_of(on_rates(8, (1, 600), (9, 500)), "parallax")["layers.3"] == "g0"
    assert devices_of(on_rates(8, (1, 600), (9, 500)), "parallax")["layers.4"] == "g1"


def test_parallax_prefers_two_pipelines_of_one_stage() -> None:
    # two of one stage: 2^2 / 2 = 2; one of one stage: 1. The request is on the larger card
    found = devices_of(on_rates(8, (2, 1000), (9, 1100)), "parallax")
    assert set(found.values()) == {"g1"}
    assert devices_of(on_rates(8, (1, 400), (1, 300)), "parallax") == {}  # 4 + 3 layers
