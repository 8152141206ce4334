"""The cluster manager: membership, chain tables, routing."""
