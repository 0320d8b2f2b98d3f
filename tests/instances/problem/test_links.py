"""Links that stay implicit are the links that would be written out."""

import random
import tracemalloc
from itertools import permutations
from pathlib import Path

import pytest

from placegap.instances import (
    Cluster,
    Device,
    Graph,
    InputError,
    Instance,
    Link,
    Op,
    example,
    load_corpus,
)
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.oracle.facts import Facts
from placegap.instances.problem.links import Group, Links, all_joined


def drawn(seed: int) -> tuple[Cluster, Cluster]:
    """A random cluster of groups and single links, and the same one with every link written."""
    rng = random.Random(f"links {seed}")
    names = [f"d{k}" for k in range(rng.randrange(2, 8))]
    entries: list[Link | Group] = []
    for _ in range(rng.randrange(1, 5)):
        bandwidth, latency = rng.choice([5, 9, 9, 20]), rng.choice([0, 1, 7])
        if rng.random() < 0.5:
            chosen = rng.sample(names, rng.randrange(1, len(names) + 1))
            entry: Link | Group = Group(tuple(chosen), bandwidth, latency)
        else:
            a, b = rng.sample(names, 2)
            entry = Link(source=a, target=b, bandwidth_bytes_per_s=bandwidth, latency_ns=latency)
        try:
            Links((*entries, entry)).check(names)
        except ValueError:
            continue  # joins a pair again
        entries.append(entry)
    devices = tuple(Device(name=name, kind="gpu", is_host=rng.random() < 0.3) for name in names)
    grouped = Cluster(name="c", devices=devices, links=Links(entries))
    return grouped, Cluster(name="c", devices=devices, links=tuple(grouped.links))


@pytest.mark.parametrize("seed", range(12))
def test_a_group_is_worth_its_links_written_out(seed: int) -> None:
    grouped, written = drawn(seed)
    assert grouped == written
    assert len(grouped.links) == len(written.links) == len(list(grouped.links))
    assert dict(grouped.widest_paths) == dict(written.widest_paths)
    for a, b in permutations(grouped.device_index, 2):
        assert grouped.all_links.find(a, b) == written.all_links.find(a, b)
    assert Cluster.model_validate(grouped.model_dump(mode="json")) == grouped
    # the second referee finds the same paths
    facts = Facts(Instance.model_construct(name="i", graph=example().graph, cluster=grouped))
    for a, b in permutations(range(len(grouped.devices)), 2):
        assert facts.path(a, b) == grouped.widest_paths.get((a, b))
    # the least bandwidth needs no table of pairs; a pair without a path has none
    least = min((bandwidth for bandwidth, _ in grouped.widest_paths.values()), default=None)
    assert grouped.least_bandwidth_bytes_per_s == least
    count = len(grouped.devices)
    assert all_joined(list(grouped.device_index), grouped.all_links) == (
        len(grouped.widest_paths) == count * (count - 1)
    )


@pytest.mark.parametrize("name", ["8xH100-nvlink", "2x4-gpu-slow-link"])
def test_the_content_hash_does_not_tell_groups_from_links(name: str) -> None:
    cluster = load_cluster(name)
    written = cluster.model_copy(update={"links": tuple(cluster.links)})
    assert cluster.all_links.groups
    assert not written.all_links.groups
    document = load_corpus("squeezenet")
    assert document.instance(cluster).content_hash == document.instance(written).content_hash


def test_the_content_hash_is_what_it_was_when_all_links_were_written() -> None:
    # entries of best-known files refer to it
    found = load_corpus("squeezenet").instance(load_cluster("8xH100-nvlink")).content_hash
    assert found == "edb9dbbc184b07d2c6b1ceb5fd18f1ee037253e3331e4b5c9350f8ea0219ed37"


def test_a_thousand_devices_all_to_all_are_cheap(tmp_path: Path) -> None:
    # 1,047,552 links; written out they take 1 GB and more
    path = tmp_path / "many.yaml"
    path.write_text(
        "name: many\ndevices: [{name: g, count: 1024, kind: T4}]\n"
        "links: [{all_to_all: all, bandwidth_bytes_per_s: 1000, latency_ns: 5}]\n"
    )
    op = Op(name="a", time_ns={"T4": 1})
    tracemalloc.start()
    try:
        instance = Instance(name="i", graph=Graph(name="g", ops=(op,)), cluster=load_cluster(path))
        arrays = instance.arrays
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(instance.cluster.links) == 1024 * 1023
    assert arrays.link_class.max() == 1
    assert peak < 200_000_000


def test_twenty_thousand_devices_have_no_table_of_pairs(tmp_path: Path) -> None:
    path = tmp_path / "more.yaml"
    rows = "".join(f"  - {{name: h{k}x, count: 1024, kind: T4}}\n" for k in range(20))
    links = "links: [{all_to_all: all, bandwidth_bytes_per_s: 1000}]\n"
    path.write_text(f"name: more\ndevices:\n{rows}{links}")
    cluster = load_cluster(path)
    assert len(cluster.links) == 20480 * 20479
    instance = load_corpus("squeezenet").instance(cluster)  # tables are made when asked for
    with pytest.raises(InputError) as caught:
        _ = instance.arrays.link_class
    # the cluster is at fault, not the model
    assert str(caught.value).startswith(f"{path}: devices: 20480 make 419430400 pairs, above the")
    assert "PLACEGAP_MAX_DEVICE_PAIRS=" in str(caught.value)
