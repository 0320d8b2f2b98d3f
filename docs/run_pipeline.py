"""Run a pipeline that placegap planned, and compare its stages with what was predicted.

    torchrun --nproc-per-node 2 run_pipeline.py my_model:build split.json answer.json

``build`` returns a module and its example inputs, as for ``py:my_model:build``; ``split.json`` is
what ``place --export pipelining=split.json`` writes, and ``answer.json`` what it prints by --json.
"""

import importlib
import json
import sys
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch.distributed.pipelining import ScheduleGPipe, SplitPoint, pipeline

MICROBATCHES, RUNS = 4, 5


def main(model: str, split: str, answer: str) -> None:
    module, _, function = model.partition(":")
    sys.path.insert(0, ".")
    torch.manual_seed(0)  # all processes build the same weights
    net, args = getattr(importlib.import_module(module), function)()
    begins = list(json.loads(Path(split).read_text())["split_spec"])
    has_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if has_gpu else "gloo")
    rank = dist.get_rank()
    device = torch.device(f"cuda:{rank}" if has_gpu else "cpu")
    torch.set_num_threads(1)  # as in ``profile --threads 1``
    net = net.eval().to(device)
    args = tuple(each.to(device) for each in args)
    pipe = pipeline(net, args, split_spec=dict.fromkeys(begins, SplitPoint.BEGINNING))
    stage, taken_ns = pipe.build_stage(rank, device), []

    def timed(*given: torch.Tensor, call=stage.submod.forward) -> torch.Tensor:
        start_ns = time.perf_counter_ns()
        found = call(*given)
        if has_gpu:
            torch.cuda.synchronize()
        taken_ns.append(time.perf_counter_ns() - start_ns)
        return found

    stage.submod.forward = timed
    schedule = ScheduleGPipe(stage, MICROBATCHES)
    batch = tuple(torch.cat([each] * MICROBATCHES) for each in args)
    with torch.no_grad():
        for _ in range(RUNS):
            output = schedule.step(*batch if rank == 0 else ())
        if rank == len(begins):
            same = torch.equal(output, torch.cat([net(*args)] * MICROBATCHES))
            print(f"outputs are {'equal' if same else 'NOT equal'} to the module's", flush=True)
    for own in json.loads(Path(answer).read_text())["devices"]:
        stages = [begins.index(layer) + 1 for layer in own["layers"] if layer in begins]
        if own["layers"] and max(stages, default=0) == rank:
            found = f"{own['compute_ns'] / 1e6:.3f} ms predicted, {median(taken_ns) / 1e6:.3f} ms"
            print(f"stage {rank} on {own['device']}: {found} measured", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
