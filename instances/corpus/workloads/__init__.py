"""The papers' workloads at the papers' scale: networks built from their published architectures."""
