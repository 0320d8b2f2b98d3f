"""Times scaled by lines that somebody has measured."""

import json
from itertools import permutations
from pathlib import Path

import pytest
from draws.lines import home_model

from placegap.experiments.cli import main
from placegap.experiments.running.measured_lines import scaled_to
from placegap.instances import InputError, Instance, Link, Makespan
from placegap.instances.exporters.read_lines import read_line
from placegap.instances.files.document import Document, save_document
from placegap.instances.referee.evaluate import evaluate


def step(gpus: int = 1, latency_ns: int = 0) -> Instance:
    """A decode step of `home_model`: ops of 1 us on cards and of 3 us on the host."""
    whole = home_model(gpus=gpus, experts=True)
    noted = whole.graph.provenance.noting("is a step", {"decode": True})
    cluster = whole.cluster
    pairs = permutations([device.name for device in cluster.devices], 2)
    links = tuple(
        Link(source=a, target=b, bandwidth_bytes_per_s=10**9, latency_ns=latency_ns)
        for a, b in pairs
    )
    cluster = cluster.model_copy(update={"links": links})
    graph = whole.graph.model_copy(update={"provenance": noted})
    return whole.model_copy(update={"graph": graph, "cluster": cluster})


def tokens(us: float) -> float:
    return 1e6 / us


def time_us(instance: Instance, line: str) -> float:
    verdict = evaluate(instance, read_line(instance, line).plan, Makespan())
    assert verdict.value_ns is not None
    return verdict.value_ns / 1000


WHOLE, PARTED = "-ngl 5", "-ngl 5 --n-cpu-moe 4"


def test_one_line_scales_the_ops_on_cards() -> None:
    # the embedding on the host, 3 us, and nine ops of 1 us on the card: 21 us if these take 2
    scaled = scaled_to(step(), [(WHOLE, tokens(21))])
    assert time_us(scaled, WHOLE) == pytest.approx(21, rel=1e-3)
    assert time_us(scaled, PARTED) == pytest.approx(15 + 5 * 2, rel=1e-3)
    assert "cards take 2 times" in str(scaled.graph.provenance.parameters["measured_lines"])


def test_two_lines_scale_cards_and_hosts() -> None:
    # 3 h + 9 c and 15 h + 5 c: with h = 2 and c = 3 these are 33 and 45 us
    scaled = scaled_to(step(), [(WHOLE, tokens(33)), (PARTED, tokens(45))])
    assert time_us(scaled, "-ngl 0") == pytest.approx(10 * 6, rel=1e-3)
    assert time_us(scaled, WHOLE) == pytest.approx(33, rel=1e-3)


def test_two_lines_without_ops_on_a_host_scale_cards_and_links() -> None:
    # 10 ops on one card, or with a transfer of 2 us between two of them
    whole = step(gpus=2, latency_ns=2000)
    devices = tuple(d for d in whole.cluster.devices if not d.is_host)
    links = tuple(x for x in whole.cluster.links if "host" not in (x.source, x.target))
    cluster = whole.cluster.model_copy(update={"devices": devices, "links": links})
    instance = whole.model_copy(update={"cluster": cluster})
    one, both = "--device CUDA0", "VLLM_PP_LAYER_PARTITION=2,2"
    scaled = scaled_to(instance, [(one, tokens(20)), (both, tokens(30))])
    assert time_us(scaled, one) == pytest.approx(20, rel=1e-3)
    assert time_us(scaled, both) == pytest.approx(30, rel=1e-3)
    assert scaled.cluster.links[0].latency_ns == pytest.approx(10_000, rel=1e-2)


def test_measurements_that_cannot_be_are_refused() -> None:
    for measured, why in (
        ([("-ngl 0", 100.0)], "has no op on a card"),
        ([(WHOLE, tokens(21)), (WHOLE, tokens(22))], "do not tell cards and hosts apart"),
        ([(WHOLE, tokens(2))], "no factor from 0.01 to 100 of cards lets"),
        ([(WHOLE, -1.0)], "is tokens per second"),
        ([(WHOLE, 1.0)] * 3, "given 3 times"),
    ):
        with pytest.raises(InputError, match=why):
            scaled_to(step(), measured)
    with pytest.raises(InputError, match="about decode steps"):
        scaled_to(home_model(), [(WHOLE, 1.0)])


def test_answers_are_relative_to_the_measured_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step.json"
    save_document(Document.of(step()), path)
    measured = ["--line", PARTED, "--measured-tokens", str(tokens(25))]
    assert main(["price", str(path), *measured, "--line", WHOLE]) == 1  # does not fit
    assert "times as fast as the measured line" in capsys.readouterr().out
    assert main(["price", str(path), *measured, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["value_ns"] == pytest.approx(25_000, rel=1e-3)
    assert main(["place", str(path), *measured, "--granularity", "experts"]) == 0
    shown = capsys.readouterr().out
    assert f"scaled to {tokens(25):g} tokens/s of '{PARTED}': cards take 2 times" in shown
    assert main(["place", str(path), "--measured-tokens", "9"]) == 2
    assert main(["price", str(path), "--line", WHOLE, "--line", PARTED]) == 2
