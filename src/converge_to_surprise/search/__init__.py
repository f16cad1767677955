"""Everything that changes the network: evolution, the relaxed search, merging, consolidation, and their loop."""
