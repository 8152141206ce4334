"""When background work may use the disk and the network that clients use, too."""
