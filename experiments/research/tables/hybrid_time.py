"""CPU seconds of our proofs of hybrid plans beside those of Piper's program, as docs/hybrid.md has.

``python -m placegap.experiments.research.tables.hybrid_time FOLDER`` reads Piper's inputs
(bert32a100.json, resnet.json) in a folder and prints a row for each setting of which it is known
how long Piper's own C++ program takes, with free degrees at 25 GB/s. Those seconds were measured
on another machine; the program proves nothing. Ours are to the proof, kernels compiled, the model
read: `time.process_time` of the second of two runs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path

from placegap.instances.importers.reader import load_model
from placegap.instances.problem import Cluster, Device, HybridPipeline
from placegap.instances.problem.links import Group, Links
from placegap.solvers import run_method

HEADS = ("input", "devices", "N", "GB", "ms", "gap", "Piper s", "proof s", "ratio")
BANDWIDTH_BYTES_PER_S = 25 * 10**9

# devices, microbatches, GB, CPU s of the program: reference/hybrid-plans.md, section 4
PIPER_S = {
    "bert32a100": (
        (8, 1920, 80, 0.06),
        (64, 1920, 80, 0.38),
        (512, 1920, 80, 5.6),
        (1024, 1920, 80, 20.1),
        (64, 1920, 24, 0.34),
        (8, 1920, 16, 0.06),
        (64, 1920, 16, 0.30),
        (8, 1920, 8, 0.05),
        (32, 1920, 8, 0.15),
        (64, 128, 8, 0.13),
        (128, 1920, 8, 0.47),
        (256, 128, 8, 0.38),
        (256, 960, 8, 1.2),
        (512, 1920, 8, 4.3),
        (1024, 1920, 8, 18.0),
        (2048, 512, 8, 14.2),
        (2048, 1920, 8, 84.2),
        (64, 1920, 4, 0.22),
        (256, 1920, 4, 1.1),
        (32, 1920, 2, 0.13),
        (256, 1920, 2, 1.1),
        (1024, 1920, 2, 14.7),
        (2048, 1920, 2, 64.3),
    ),
    "resnet": (
        (8, 7680, 8, 4.0),
        (16, 7680, 4, 5.4),
        (32, 7680, 2, 8.6),
        (32, 7680, 4, 7.6),
        (64, 7680, 4, 11.7),
        (64, 7680, 8, 12.3),
        (8, 7680, 4, 3.8),
        (16, 7680, 8, 6.8),
        (32, 7680, 8, 8.3),
        (64, 7680, 2, 12.4),
    ),
}


def rows(folder: Path, name: str, most: int | None = None) -> Iterator[tuple[str, ...]]:
    """The rows of one input, and last the geometric means of the ratios."""
    document, ratios = load_model(folder / f"{name}.json"), dict[bool, list[float]]()
    for count, microbatches, memory_gb, theirs_s in PIPER_S[name][:most]:
        names = tuple(f"gpu{k}" for k in range(count))
        devices = tuple(
            Device(name=gpu, kind="accelerator", memory_bytes=memory_gb * 10**9) for gpu in names
        )
        links = Links((Group(names, BANDWIDTH_BYTES_PER_S),))
        instance = document.instance(Cluster(name=f"{count}", devices=devices, links=links))
        semantics = HybridPipeline(microbatches=microbatches, degrees="free")
        for _ in range(2):
            begin = time.process_time()
            result = run_method(instance, semantics, "hybrid-cuts", time_limit_s=60)
            ours_s = time.process_time() - begin
        ratio = theirs_s / ours_s
        ratios.setdefault(count >= 64, []).append(ratio)
        value = result.value_ns or 0
        gap = "open" if result.gap is None else f"{100 * result.gap:.2f} %" if result.gap else "0"
        row = (name, str(count), str(microbatches), str(memory_gb))
        times = f"{theirs_s:.2f}", f"{ours_s:.2f}", f"{ratio:.1f}"
        yield (*row, f"{value / microbatches / 1e6:.6f}", gap, *times)
    for is_large, found in sorted(ratios.items()):
        mean = exp(sum(map(log, found)) / len(found))
        size = "64 or more" if is_large else "fewer than 64"
        yield (name, size, "", "", "", "", "", "mean", f"{mean:.1f}")


def main(arguments: Sequence[str]) -> None:
    """Print the table as it is in the page."""
    print(f"| {' | '.join(HEADS)} |")
    print("|" + "---|" * len(HEADS))
    for name in PIPER_S:
        for row in rows(Path(arguments[0]), name):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
