"""Clusters in one line: devices, servers, links, and what is wrong with others."""

import re
from pathlib import Path

from placegap.instances import Cluster, load_cluster
from placegap.instances.costing.catalogue import catalogue
from placegap.instances.costing.measured_links import measured_link
from placegap.instances.files.cluster_text import find_kind

PCIE4 = 31_500_000_000  # 16 GT/s x 16 lanes x 128/130 / 8 bits, rounded as PCIe 3.0's 15.75 GB/s


def paths(cluster: Cluster) -> dict[tuple[str, str], tuple[int, int]]:
    names = [device.name for device in cluster.devices]
    return {(names[a], names[b]): path for (a, b), path in cluster.widest_paths.items()}


def test_cards_of_two_kinds_on_one_bus() -> None:
    cluster = load_cluster("2xRTX3090+1xRTX3070, pcie4")
    assert cluster.name == "2xRTX3090+RTX3070, pcie4"
    assert [device.name for device in cluster.devices] == ["RTX3090-0", "RTX3090-1", "RTX3070"]
    giga = [(device.kind, device.memory_bytes / 2**30) for device in cluster.devices]
    assert giga == [("RTX3090", 24), ("RTX3090", 24), ("RTX3070", 8)]
    assert set(paths(cluster).values()) == {(PCIE4, 10_000)}
    assert len(paths(cluster)) == 3 * 2
    assert load_cluster(cluster.name).devices == cluster.devices
    assert paths(load_cluster(cluster.name)) == paths(cluster)


def test_case_dashes_and_spaces_do_not_count() -> None:
    for text in ("2 x rtx-3090,PCIe 4", "2XRtx_3090, pcie-4x16", "1*3090+3090,pcie4"):
        cluster = load_cluster(text)
        assert [device.kind for device in cluster.devices] == ["RTX3090", "RTX3090"]
        assert paths(cluster)["RTX3090-0", "RTX3090-1"] == (PCIE4, 10_000)


def test_a_host_is_a_cpu_with_a_memory_of_its_own() -> None:
    *cards, host, server = load_cluster("2xT4:15GB+host:64GB+xeon5220, pcie3").devices
    assert [(card.is_host, card.memory_bytes) for card in cards] == [(False, 15 * 10**9)] * 2
    assert (host.name, host.kind, host.is_host) == ("host", "DDR5-2ch", True)
    assert host.memory_bytes == 64 * 10**9
    assert server.is_host
    assert server.memory_bytes == catalogue()["Xeon-5220"].memory_bytes


def test_nvlink_joins_the_cards_that_have_it_and_pcie_the_others() -> None:
    between = paths(load_cluster("2xRTX3090+T4+host, nvlink, pcie4"))
    assert between["RTX3090-0", "RTX3090-1"] == (56_250_000_000, 5_000)  # half of 112.5 GB/s
    others = {path for pair, path in between.items() if set(pair) & {"T4", "host"}}
    assert others == {(PCIE4, 10_000)}


def test_a_card_may_have_fewer_lanes_than_the_others() -> None:
    cluster = load_cluster("RTX3090@pcie4x8 + 2xRTX3090@pcie3x4+host, pcie4")
    assert cluster.name == "RTX3090@pcie4x8+2xRTX3090@pcie3x4+host, pcie4"
    eight, four = PCIE4 // 2, 15_750_000_000 // 4
    assert paths(cluster) == {
        pair: (eight if {*pair} == {"RTX3090-0", "host"} else four, 10_000)
        for pair in paths(cluster)
    }
    assert len(paths(cluster)) == 4 * 3
    assert paths(load_cluster(cluster.name)) == paths(cluster)
    # where every card says its own, a host is their other end
    alone = paths(load_cluster("RTX3090@pcie4x8+2xRTX3090@pcie3x4+host"))
    assert alone == paths(cluster)
    # NVLink joins the cards, and the host is behind the lanes of each
    bridged = paths(load_cluster("RTX3090@pcie4x8+RTX3090@pcie4x4+host, nvlink, pcie4"))
    assert bridged["RTX3090-0", "RTX3090-1"] == (56_250_000_000, 5_000)
    assert bridged["RTX3090-1", "host"] == (PCIE4 // 4, 10_000)
    servers = paths(load_cluster("2x(2xT4@pcie3x4+host), ethernet-10g"))
    assert servers["s0.T4-0", "s0.T4-1"] == (four, 10_000)


def test_older_generations_of_pcie_have_2_and_4_gbit_a_lane() -> None:
    for word, rate in (("pcie1x1", 250_000_000), ("pcie2x1", 500_000_000), ("pcie2", 8 * 10**9)):
        assert set(paths(load_cluster(f"2xP40, {word}")).values()) == {(rate, 10_000)}


def test_thunderbolt_carries_32_or_64_gbit_of_pcie() -> None:
    for word, rate in (("thunderbolt4", 4_000_000_000), ("Thunderbolt 5", 8_000_000_000)):
        assert set(paths(load_cluster(f"RTX3090+host, {word}")).values()) == {(rate, 10_000)}
        behind = paths(load_cluster(f"2xRTX3090+RTX4090@{word}+host, pcie4"))
        assert behind["RTX4090", "host"] == (rate, 10_000)
        assert behind["RTX3090-0", "host"] == (PCIE4, 10_000)


def test_measured_links_stand_in_place_of_nvlink() -> None:
    two = measured_link("L40S")[:2]  # which has no NVLink
    between = paths(load_cluster("2x(2xL40S+host), measured, pcie4, ethernet-10g"))
    assert between["s1.L40S-0", "s1.L40S-1"] == two
    assert between["s0.L40S-1", "s0.host"] == (PCIE4, 10_000)
    assert between["s0.host", "s1.host"] == (1_250_000_000, 50_000)
    assert paths(load_cluster("2xL40S, measured"))["L40S-0", "L40S-1"] == two


def test_cards_of_the_same_number_are_joined_by_infiniband() -> None:
    cluster = load_cluster("16x8xH100, nvlink, infiniband")
    assert len(cluster.devices) == 16 * 8
    assert len({device.server for device in cluster.devices}) == 16
    assert len(cluster.all_links.entries) == 16 + 8  # servers and rails
    between = paths(load_cluster("2x8xH100, nvlink, infiniband"))
    assert between["s0.H100-80GB-0", "s0.H100-80GB-7"] == (450_000_000_000, 5_000)
    assert between["s0.H100-80GB-3", "s1.H100-80GB-3"] == (25_000_000_000, 10_000)
    # NVLink to the card of that number, then InfiniBand
    assert between["s0.H100-80GB-3", "s1.H100-80GB-4"] == (25_000_000_000, 15_000)


def test_ethernet_joins_the_hosts_of_servers_that_have_some() -> None:
    between = paths(load_cluster("1x(2xT4+host)+1x1xRTX3090, pcie3, ethernet-10g"))
    assert between["s0.host", "s1.RTX3090"] == (1_250_000_000, 50_000)
    assert between["s0.T4-1", "s1.RTX3090"] == (1_250_000_000, 60_000)  # PCIe to the host first
    # two machines of a card each
    assert paths(load_cluster("RTX3090+T4, ethernet-1g"))["RTX3090", "T4"] == (125_000_000, 50_000)


def test_every_line_of_the_page_is_a_cluster() -> None:
    page = (Path(__file__).parents[3] / "docs" / "gpus.md").read_text()
    lines = re.findall(r"^\|`([^`]+)`\|(?:one|three|NVLink|a card|16|two)", page, re.MULTILINE)
    assert len(lines) == 9
    assert [len(load_cluster(line).devices) for line in lines] == [1, 3, 3, 3, 1, 128, 10, 3, 2]


def test_a_part_of_a_name_is_the_one_kind_that_has_it_or_that_begins_with_it() -> None:
    assert find_kind("3090", catalogue()) == "RTX3090"
    # H100-80GB or H100-80GB-PCIe
    assert find_kind("H100", catalogue()) == "H100-80GB"


def test_the_name_of_a_kind_is_one_device_and_part_of_no_cluster_s_name(tmp_path: Path) -> None:
    for kind in ("T4", "RTX2080Ti"):  # 2xT4-pcie and 4xRTX2080Ti-pcie ship
        assert [device.kind for device in load_cluster(kind).devices] == [kind]
    path = tmp_path / "kinds.yaml"
    path.write_text("P100: {peak_flops_per_s: 1e13, bandwidth_bytes_per_s: 7e11, memory_bytes: 9}")
    assert len(load_cluster("P100").devices) == 1  # not fd-dps-8xP100
    assert [device.memory_bytes for device in load_cluster("P100", path).devices] == [9]


def test_servers_of_cards_with_nvlink_need_no_kinds_of_links() -> None:
    assert load_cluster("2x8xH100").links == load_cluster("2x8xH100, nvlink, infiniband").links
    assert load_cluster("1x8xH100").links == load_cluster("1x8xH100, nvlink").links
