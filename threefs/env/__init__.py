"""The only door to the outside: clock, randomness, network and disk as protocols, with real adapters."""
