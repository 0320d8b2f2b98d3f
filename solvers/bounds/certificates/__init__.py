"""Write certificates: multipliers of LPs, trees of cases, chains of sections."""
