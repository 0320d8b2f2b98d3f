"""How learned placers use torch: when it is missing, and the same numbers on every run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from placegap.solvers.core.method import why_not_installed


def missing() -> str | None:
    """How to install torch, or None."""
    return why_not_installed("torch", "torch")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's random numbers from a seed, on one thread; what was before comes back afterwards.

    Several threads would add in another order from run to run.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)
