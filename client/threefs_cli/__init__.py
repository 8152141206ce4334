"""The program `threefs`: local clusters, files, and a demonstration."""
