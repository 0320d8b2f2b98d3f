"""The graphs of the corpus and the workloads of papers, built from published architectures."""
