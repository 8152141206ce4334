"""The plan of a new cluster, and the chains that are made from it."""
