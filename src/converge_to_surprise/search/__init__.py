"""What changes the network: evolution, the relaxed search, merging, consolidation, and the loop over them."""
