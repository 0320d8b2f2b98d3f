"""``placegap kernels``: what is compiled on this machine."""

import json
from pathlib import Path

import numpy as np
import pytest

from placegap.experiments.cli import main
from placegap.instances.kernels import compiled_kernels, kernel_folder
from placegap.instances.kernels.kernel import kernel


def total_of(values: np.ndarray) -> int:
    total = 0
    for value in values:
        total += value
    return total


def test_kernels_are_listed_with_their_times_until_they_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (compiled_kernels, kernel_folder):
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path)
    assert kernel(total_of)(np.array([1, 2])) == 3
    assert main(["kernels", "--json"]) == 0
    (kept,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kept["name"].endswith("test_kernels.total_of")
    assert kept["compile_s"] > 0
    assert main(["kernels"]) == 0
    assert "1 kernel, compiled 1 time in" in capsys.readouterr().out
    assert main(["kernels", "--clear"]) == 0
    assert f"1 compiled kernels deleted from {tmp_path}" in capsys.readouterr().out.replace(
        "\n", ""
    )
    assert list(tmp_path.iterdir()) == []
