"""What inodes cost, whom, and the limits."""
