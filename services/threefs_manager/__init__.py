"""The cluster manager: which nodes live, which targets form which chain, and the routing."""
