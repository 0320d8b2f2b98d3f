"""The link between two processes: what is written, and what is no link."""

from __future__ import annotations

from pathlib import Path

import pytest

from placegap.experiments.cli import main
from placegap.instances.files.cluster_file import load_cluster

pytestmark = pytest.mark.torch

Capture = pytest.CaptureFixture[str]
NET = """
import torch
def build():
    return torch.nn.Linear(3, 5), (torch.zeros(7, 3),)
"""


@pytest.mark.parametrize(
    ("small_ns", "large_ns", "rate"),
    [
        (50_000, 40_000, None),  # the small one was disturbed: 4e15 bytes/s at 1 ns more
        (50_000, 50_420, 9_976_685_714_285),  # 4 MiB less 4 KiB in 420 ns more
    ],
)
def test_a_rate_that_no_link_has_is_refused(
    small_ns: int,
    large_ns: int,
    rate: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    from placegap.experiments.running import machine_link as link

    monkeypatch.setattr(link, "run_together", lambda *_: [(small_ns, large_ns)] * 2)
    (tmp_path / "link_net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "here.yaml"
    command = ["profile", "py:link_net:build", "--runs", "1", "--cluster-out", str(out)]
    assert main(command) == (2 if rate is None else 0)
    shown = capsys.readouterr()
    assert "all ops" in shown.out
    if rate is not None:
        cluster = load_cluster(out)
        assert cluster.links[0].bandwidth_bytes_per_s == rate
        assert cluster.kinds["cpu"].peak("float32") > 10**8  # any core that runs torch
        assert cluster.devices[0].memory_bytes is None  # processes share the machine's
        return
    assert "--cluster-out: no link is so fast: 4194304 bytes took" in shown.err
    assert "measure again" in shown.err
    assert not out.exists()
