"""`threefs demo`: a cluster used as in training, with every result checked."""
