"""Speed and memory, measured as ratios to a peer or to the hardware limit within one run."""
