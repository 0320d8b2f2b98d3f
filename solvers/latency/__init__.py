"""`latency` and `latency-ip`: calls of devices, one subgraph each."""
