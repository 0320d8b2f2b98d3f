from . import (
    archer,
    getf,
    helix,
    latency_ip,
    m_sct,
    makespan_cp,
    moirai,
    pesto,
    sections,
    throughput_ip,
)

__all__ = [
    "archer",
    "getf",
    "helix",
    "latency_ip",
    "m_sct",
    "makespan_cp",
    "moirai",
    "pesto",
    "sections",
    "throughput_ip",
]
