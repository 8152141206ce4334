"""Load and measurements: rates beside what the machine itself can do in the same run."""
