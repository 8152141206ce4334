"""Changes of chains: what follows from the states of their targets."""
