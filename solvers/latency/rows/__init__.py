"""The least row of calls along a spine, as a bound and as a plan."""
