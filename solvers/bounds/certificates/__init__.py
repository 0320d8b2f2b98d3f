"""Certificates: bounds whose proofs are written down, for a checker that trusts nobody."""
