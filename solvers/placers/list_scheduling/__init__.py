"""HEFT, PEFT, CPOP, ETF, m-ETF, m-SCT, GETF, and the kernels they share."""
