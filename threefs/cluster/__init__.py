"""A process and its cluster: routing, managers, chunks through their chains, registration, being a daemon."""
