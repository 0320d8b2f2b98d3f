"""Cluster files: those that ship, the schema, and what is wrong with others."""

import json
import re
from itertools import permutations
from pathlib import Path

import pytest

from placegap.instances import Cluster, Graph, Op, cost_graph
from placegap.instances.costing.catalogue import specs_of
from placegap.instances.costing.costing import kernel_ns
from placegap.instances.files.cluster_file import cluster_names, full_name, load_cluster

TWO = """\
name: two
devices:
  - {name: d, count: 2, kind: T4}
links:
  - {all_to_all: all, bandwidth_bytes_per_s: 1000, latency_ns: 5}
"""

# Moirai, Table III, Gbit/s times 100, of AB, AC, AD, BA, BC, BD, CA, CB, CD, DA, DB and DC
TABLE_III = {
    "moirai-inter-server": "4426 3292 4428 4239 3532 4451 3320 3531 3295 4208 4322 3328",
    "moirai-intra-server": (
        "117004 62610 61056 114816 61898 58109 63043 60982 57196 62267 57508 58135"
    ),
}


def write(folder: Path, text: str, name: str = "c.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def paths(cluster: Cluster) -> dict[str, tuple[int, int]]:
    names = [device.name for device in cluster.devices]
    return {names[a] + names[b]: path for (a, b), path in cluster.widest_paths.items()}


@pytest.mark.parametrize("name", cluster_names())
def test_a_shipped_cluster_joins_every_pair_and_states_its_source(name: str) -> None:
    cluster = load_cluster(name)
    size = len(cluster.devices)
    assert cluster.name == name
    assert len(cluster.widest_paths) == size * (size - 1)
    assert cluster.provenance.source
    assert all(device.memory_bytes for device in cluster.devices)


@pytest.mark.parametrize("name", TABLE_III)
def test_moirai_bandwidths_are_those_of_table_iii(name: str) -> None:
    # x / 100 Gbit/s = x * 1e7 / 8 bytes/s
    pairs = ["".join(pair) for pair in permutations("ABCD", 2)]
    rates = [int(x) * 10**7 // 8 for x in TABLE_III[name].split()]
    found = load_cluster(name)
    assert paths(found) == {pair: (rate, 0) for pair, rate in zip(pairs, rates, strict=True)}
    giga = [11, 16, 8, 8] if "inter" in name else [32, 32, 16, 16]
    assert [device.memory_bytes for device in found.devices] == [m * 10**9 for m in giga]


def test_pairs_across_two_hosts_go_along_the_slow_link() -> None:
    between = paths(load_cluster("2x4-gpu-slow-link"))
    assert (between["a1a2"], between["a0b0"]) == ((15_750_000_000, 10_000), (1_250_000_000, 50_000))
    assert between["a3b0"] == (1_250_000_000, 60_000)  # PCIe to a0, then the slow link
    assert between["b2a3"] == (1_250_000_000, 70_000)  # b2 -> b0 -> a0 -> a3


def test_devices_are_named_one_by_one_counted_or_listed(tmp_path: Path) -> None:
    text = """\
name: c
devices:
  - {name: cpu, kind: Xeon-5220, is_host: true, memory_bytes: 5}
  - {name: gpu, count: 2, kind: T4}
  - {names: [x, y], kind: mine, memory_bytes: null}
"""
    devices = load_cluster(write(tmp_path, text)).devices
    assert [device.name for device in devices] == ["cpu", "gpu0", "gpu1", "x", "y"]
    sizes = [5, 16 * 10**9, 16 * 10**9, None, None]
    assert [device.memory_bytes for device in devices] == sizes
    assert [device.is_host for device in devices] == [True, *[False] * 4]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("source: d0, target: d1", {"d0d1"}),
        ("between: [d0, d1]", {"d0d1", "d1d0"}),
        ("all_to_all: [d2, d0]", {"d0d2", "d2d0"}),
        ("all_to_all: all", {"d0d1", "d1d0", "d0d2", "d2d0", "d1d2", "d2d1"}),
    ],
)
def test_a_link_entry_joins_what_it_names(tmp_path: Path, entry: str, expected: set[str]) -> None:
    link = f"{{{entry}, bandwidth_bytes_per_s: 7, latency_ns: 3}}"
    text = f"name: c\ndevices: [{{name: d, count: 3, kind: T4}}]\nlinks: [{link}]\n"
    links = load_cluster(write(tmp_path, text)).links
    assert {link.source + link.target for link in links} == expected
    assert {(link.bandwidth_bytes_per_s, link.latency_ns) for link in links} == {(7, 3)}


def test_a_matrix_is_read_as_sender_then_receiver(tmp_path: Path) -> None:
    matrix = "{matrix_bytes_per_s: {d0: {d1: 7}, d1: {d0: 9}}, latency_ns: 2}"
    text = TWO.replace("{all_to_all: all, bandwidth_bytes_per_s: 1000, latency_ns: 5}", matrix)
    assert paths(load_cluster(write(tmp_path, text))) == {"d0d1": (7, 2), "d1d0": (9, 2)}


@pytest.mark.parametrize(
    ("part", "name", "kinds"),
    [
        ("4xV100-pcie", "celeritas-4xV100-pcie", ["V100-32GB-PCIe"] * 4),
        ("8xH100", "8xH100-nvlink", ["H100-80GB"] * 8),
        ("intra-server", "moirai-intra-server", ["V100-32GB"] * 2 + ["P100-16GB"] * 2),
    ],
)
def test_a_part_of_a_name_is_the_one_cluster_that_has_it(
    part: str, name: str, kinds: list[str]
) -> None:
    cluster = load_cluster(part)
    assert (cluster.name, [device.kind for device in cluster.devices]) == (name, kinds)


def test_devices_become_a_shipped_cluster_only_where_it_has_just_these_and_begins_so() -> None:
    texts = {text for name in cluster_names() for text in re.findall(r"\d+x[A-Z]\w+", name)}
    completed = {text: full_name(text) for text in texts if full_name(text) != text}
    assert {"4xV100", "2xRTX3090", "4xA100", "8xP100"} <= texts - completed.keys()
    assert completed["8xH100"] == "8xH100-nvlink"
    for text, name in completed.items():
        count, _, kind = text.partition("x")
        kinds = [device.kind for device in load_cluster(name).devices]
        assert name.startswith(f"{text}-")
        assert len(kinds) == int(count)
        assert all(each.startswith(kind) for each in kinds)


TWO_YAML = TWO.replace("1000, latency_ns: 5", "RATE, latency_ns: 5e3")
TWO_YAML = TWO_YAML.replace("T4", "T4, memory_bytes: 1.6e10")


@pytest.mark.parametrize("rate", ["25e9", "2.5E+10", "25_000_000_000", "25000000000.0", '"25e9"'])
def test_an_integer_may_be_written_with_an_exponent(tmp_path: Path, rate: str) -> None:
    cluster = load_cluster(write(tmp_path, TWO_YAML.replace("RATE", rate)))
    assert cluster.links[0].bandwidth_bytes_per_s == 25_000_000_000
    assert cluster.links[0].latency_ns == 5000
    assert cluster.devices[0].memory_bytes == 16_000_000_000
    own = cluster.model_dump_json().replace("25000000000", rate.replace("_", "").strip('"'))
    assert load_cluster(write(tmp_path, own, "c.json")) == cluster


def test_no_digit_is_lost_of_a_large_integer(tmp_path: Path) -> None:
    # 2**53 + 1, which no float is, and 2**62
    for rate, read in (("9007199254740993e0", 2**53 + 1), ("4.611686018427387904e18", 2**62)):
        cluster = load_cluster(write(tmp_path, TWO.replace("1000", rate)))
        assert cluster.links[0].bandwidth_bytes_per_s == read


def test_the_clusters_of_the_page_are_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "gpus.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    for block, names in zip(blocks, ("a0 a1 a2 a3", "big own cpu", "a0 a1 x y"), strict=False):
        cluster = load_cluster(write(tmp_path, block))
        assert [device.name for device in cluster.devices] == names.split()


def one(tmp_path: Path, entry: str, head: str = "") -> Cluster:
    text = f"name: c\n{head}devices:\n" + "".join(f"  - {line}\n" for line in entry.split(";"))
    return load_cluster(write(tmp_path, text))


RATES = "peak_flops_per_s: 2e13, bandwidth_bytes_per_s: 5e11"


def test_a_card_that_states_its_own_rates_needs_no_catalogue(tmp_path: Path) -> None:
    cluster = one(tmp_path, f"{{name: d, memory_bytes: 24e9, {RATES}, launch_overhead_ns: 7000}}")
    (device,) = cluster.devices
    assert (device.kind, device.memory_bytes) == ("d", 24 * 10**9)
    op = Op(name="a", flops=10**9, bytes_moved=0)  # 1e9 FLOP at 2e13 FLOP/s take 50 us
    costed = cost_graph(Graph(name="g", ops=(op,)), cluster)
    assert costed.ops[0].time_ns == {"d": 7_000 + 50_000}
    assert costed.provenance.parameters["costing.d.source"] == "stated in the cluster file"


def test_rates_by_number_type_stand_before_those_of_the_kind(tmp_path: Path) -> None:
    entry = "{name: d, kind: T4, peak_flops_per_s: {float32: 8e12, float16: 5e13}}"
    spec = one(tmp_path, entry).kinds["T4"]
    assert (spec.peak(None), spec.peak("float16")) == (8 * 10**12, 5 * 10**13)
    assert spec.bandwidth_bytes_per_s == 320 * 10**9  # the catalogue's
    assert spec.source.startswith("peak_flops_per_s: stated in the cluster file; else NVIDIA")
    assert one(tmp_path, "{name: d, kind: T4}").kinds == {}


@pytest.mark.parametrize("word", ["is_host", "is_cpu"])
def test_a_kind_may_be_one_of_hosts(tmp_path: Path, word: str) -> None:
    slow = f"slow: {{{RATES}, memory_bytes: 64e9, {word}: true}}\n"
    kinds = write(tmp_path, slow, "kinds.yaml")
    for cluster in (
        load_cluster("T4+slow, pcie4", kinds),
        one(tmp_path, "{name: a, kind: T4};{name: b, kind: slow}", f"kinds:\n  {slow}"),
    ):
        assert [device.is_host for device in cluster.devices] == [False, True]
        assert cluster.kinds["slow"].is_cpu
        assert cluster.kinds["slow"].launch_overhead_ns == 1_000
    stated = write(tmp_path, slow.replace(word, f"launch_overhead_ns: 5000, {word}"), "kinds.yaml")
    assert load_cluster("T4+slow, pcie4", stated).kinds["slow"].launch_overhead_ns == 5_000


def test_a_device_is_a_host_as_its_kind_is_where_its_entry_does_not_say(tmp_path: Path) -> None:
    entry = "{name: a, kind: Xeon-5220};{name: b, kind: Xeon-5220, is_host: false}"
    assert [device.is_host for device in one(tmp_path, entry).devices] == [True, False]
    kinds = f"kinds:\n  own: {{{RATES}, memory_bytes: 8e9}}\n"
    host = one(tmp_path, "{name: a, kind: own, is_host: true}", kinds)  # the kind states no launch
    assert (host.devices[0].is_host, host.kinds["own"].launch_overhead_ns) == (True, 1_000)
    unnamed = one(tmp_path, f"{{name: h, is_host: true, memory_bytes: 64e9, {RATES}}}").kinds["h"]
    assert (unnamed.launch_overhead_ns, unnamed.is_cpu) == (1_000, True)
    # a card of the catalogue that holds what hosts hold stays as fast
    assert one(tmp_path, "{name: a, kind: T4, is_host: true}").kinds == {}
    # costed as one: 350 bytes at 0.7 of 5e11 bytes/s take 1 ns, and threads 30 us
    assert kernel_ns(0, 350, host.kinds["own"]) == 1_000 + 1 + 30_000
    stated = kinds.replace("memory", "launch_overhead_ns: 7000, memory")
    host = one(tmp_path, "{name: a, kind: own, is_host: true}", stated)
    assert kernel_ns(0, 350, host.kinds["own"]) == 7_000 + 1 + 30_000


def test_kinds_of_a_file_stand_beside_the_catalogue(tmp_path: Path) -> None:
    kinds = f"kinds:\n  mine: {{{RATES}, memory_bytes: 8e9, reserved_bytes: 1e9}}\n"
    cluster = one(tmp_path, "{name: d, count: 2, kind: mine};{name: t, kind: T4}", kinds)
    assert [device.memory_bytes for device in cluster.devices] == [7 * 10**9] * 2 + [16 * 10**9]
    assert list(specs_of(cluster)) == ["T4", "mine"]
    # what a desktop takes is no memory of the card
    desktop = one(tmp_path, "{name: a, kind: T4, reserved_bytes: 1.5e9}")
    assert (desktop.devices[0].memory_bytes, desktop.kinds) == (14_500_000_000, {})
    measured = one(tmp_path, "{name: a, kind: own, memory_bytes: 9, reserved_bytes: 2}")
    assert measured.devices[0].memory_bytes == 7
    path = write(tmp_path, f"mine: {{{RATES}, memory_bytes: 8e9}}\n", "kinds.yaml")
    assert load_cluster("2xMINE+T4, pcie3", path).devices[0].memory_bytes == 8 * 10**9
    own = json.dumps(cluster.model_dump(mode="json"))
    assert load_cluster(write(tmp_path, own, "c.json")) == cluster
