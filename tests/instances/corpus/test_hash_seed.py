"""Generated graphs and the papers' workloads are the same whatever Python's hash seed."""

from references.hash_seeds import printed_here_and_there

PROGRAM = """
from placegap.instances.corpus.generate import FAMILIES, generate
from placegap.experiments.research.workloads.catalogue import build_workload

for family in FAMILIES:
    print(generate(family).model_dump_json())
for name in ("celeritas:holography", "tarnawski:bert-3-training"):
    print(build_workload(name).model_dump_json())
"""


def test_the_hash_seed_of_python_does_not_matter() -> None:
    here, there = printed_here_and_there(PROGRAM)
    assert here.count("\n") > 2
    assert here == there
