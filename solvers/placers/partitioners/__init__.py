"""Graph partitioners: METIS, Mt-KaHyPar, Scotch."""
