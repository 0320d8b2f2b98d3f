"""Tasks on the machines of a Dask cluster, each in a process with a hard limit of its own."""
