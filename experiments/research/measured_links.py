"""``python -m placegap.experiments.research.measured_links``: reads the tables of links.json anew.

Each names its source: `aiconfigurator-core` 0.12.0, on PYTHONPATH beside pyarrow, or
`shared/instances/measured/collectives.csv.gz`. Of an all-to-all of B bytes on two cards each sends
half to the other, as an engine sends to the next stage. If it were B, an A100 would send 328 GB/s
by 300 GB/s of NVLink. oneCCL has no all-to-all; in a reduce-scatter each card sends half, too.
"""

import csv
import gzip
import json
from importlib import import_module, resources
from pathlib import Path

from placegap.instances.reading.input_files import data_path

MEASURED = Path(__file__).resolve().parents[3] / "shared" / "instances" / "measured"

# 64 KiB to 1 GiB: below it a transfer is latency alone, and no tensor of a plan is larger.
SIZES = {2**k for k in range(16, 31)}


def bytes_ns(source: str) -> list[list[int]]:
    """What each of two cards sends, and the time."""
    package, table, op = source.split(", ")
    if package.startswith("aiconfigurator-core"):
        path = resources.files("aiconfigurator_core") / "systems" / "data" / f"{table}.parquet"
        filters = [("op_name", "==", op), ("num_gpus", "==", 2), ("nccl_dtype", "==", "half")]
        rows = import_module("pyarrow.parquet").read_table(path, filters=filters).to_pylist()
        sent = [(row["message_size"], row["latency"]) for row in rows]  # half the items, of 2 bytes
    else:
        with gzip.open(MEASURED / "collectives.csv.gz", "rt") as lines:
            rows = [line for line in csv.reader(lines) if line[:3] == [table, op, "2"]]
        sent = [(int(row[3]) * 2**19, float(row[4])) for row in rows]  # half the MB
    return sorted([size, round(ms * 1e6)] for size, ms in sent if size in SIZES)


if __name__ == "__main__":
    file = data_path("measured", "links.json")
    tables = {
        kind: table | {"bytes_ns": bytes_ns(table["source"])}
        for kind, table in json.loads(file.read_text()).items()
    }
    text = ",\n".join(f'"{kind}": {json.dumps(table)}' for kind, table in tables.items())
    file.write_text(f"{{{text}}}\n")
