"""Links that are fitted to measured transfers of two cards."""

import json
from pathlib import Path
from typing import Any

import pytest

from placegap.experiments.show.place_report import plan_notes
from placegap.instances import Instance, MaxLoad, load_cluster, load_corpus
from placegap.instances.costing.catalogue import catalogue
from placegap.instances.costing.measured_links import fitted_line, measured_link
from placegap.instances.reading.input_files import data_path
from placegap.solvers import Result, run_method

TABLES: dict[str, Any] = json.loads(data_path("measured", "links.json").read_text())


def test_a_table_of_two_numbers_gives_them_back() -> None:
    # 5 us, and 8 ns for 1,000 bytes: 125 GB/s
    rows = [[size, 5_000 + size * 0.008] for size in (2**16, 2**20, 2**24, 2**30)]
    assert fitted_line(rows) == pytest.approx((5_000, 0.008, 0), rel=1e-9, abs=1e-9)


def test_no_line_has_a_smaller_worst_error() -> None:
    # sizes 1, 2, 3 in times 2, 4, 4, off by e above, below and above: the values of a line satisfy
    # 2 (1 + e) + 4 (1 + e) = 2 * 4 (1 - e), so that e = 1/7 and they are 16/7, 24/7, 32/7;
    # the fourth time lies on that line
    rows = [[1, 2], [2, 4], [3, 4], [4, 40 / 7]]
    assert fitted_line(rows) == pytest.approx((8 / 7, 8 / 7, 1 / 7))


def test_an_a100_moves_half_of_what_its_datasheet_says() -> None:
    # 12 NVLinks of 25 GB/s each way make 300 GB/s. In the longest transfer of the table 256 MiB
    # take 1.6353 ms: 164 GB/s, 55 %. (Were an all-to-all's bytes all sent, 328 GB/s: 109 %.)
    size, time = TABLES["A100-80GB"]["bytes_ns"][-1]
    assert (size, time) == (2**28, 1_635_300)
    nvlink = catalogue()["A100-80GB"].nvlink_bytes_per_s
    assert nvlink == 300_000_000_000
    assert 0.54 * nvlink < size / time * 1e9 < 0.56 * nvlink
    # the line is at most 20.7 % slower or faster than each of the table
    rate, latency, note = measured_link("A100-80GB")
    assert abs((latency + size / rate * 1e9) / time - 1) < 0.208
    assert note == (
        "links of A100-80GB take 17 us and 137 GB/s, at most 21 % off what was measured"
        " (aiconfigurator-core 0.12.0, a100_sxm/comm/nccl/2.27.3/nccl_perf, alltoall)"
    )


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_holds_what_the_fit_says_and_no_more_than_the_card_moves(kind: str) -> None:
    rows = TABLES[kind]["bytes_ns"]
    rate, latency, _ = measured_link(kind)
    assert len(rows) >= 10
    assert latency > 0
    off = [abs((latency + size / rate * 1e9) / time - 1) for size, time in rows]
    assert max(off) < 0.21  # A100-80GB's, the worst
    spec = catalogue().get(kind)
    most = (spec.nvlink_bytes_per_s if spec else None) or 900e9
    assert max(size / time * 1e9 for size, time in rows) < most


def placed(folder: Path, link: str) -> tuple[Instance, Result]:
    file = folder / "c.yaml"
    file.write_text(
        "name: c\ndevices: [{name: a, count: 4, kind: A100-80GB, reserved_bytes: 0}]\n"
        f"links: [{{all_to_all: all, {link}}}]\n"
    )
    instance = load_corpus("squeezenet").instance(load_cluster(file))
    return instance, run_method(instance, MaxLoad(plans="chain"), "ideal-dp")


def test_a_measured_link_is_the_two_numbers_and_the_answer_says_so(tmp_path: Path) -> None:
    rate, latency, note = measured_link("A100-80GB")
    stated, as_stated = placed(tmp_path, f"bandwidth_bytes_per_s: {rate}, latency_ns: {latency}")
    instance, result = placed(tmp_path, "measured: true")
    assert instance.content_hash == stated.content_hash
    assert (result.value_ns, result.status) == (as_stated.value_ns, "optimal")
    assert note in plan_notes(instance, result)
    assert note in instance.cluster.provenance.changes
    assert note not in plan_notes(stated, as_stated)


def test_two_cards_of_one_server_may_have_a_measured_link(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    cards = "[{name: a, kind: L40S, server: x}, {name: b, kind: L40S, server: x}]"
    link = "{source: a, target: b, measured: true}"
    file.write_text(f"name: c\ndevices: {cards}\nlinks: [{link}]")
    (link,) = load_cluster(file).links
    assert (link.bandwidth_bytes_per_s, link.latency_ns) == measured_link("L40S")[:2]
