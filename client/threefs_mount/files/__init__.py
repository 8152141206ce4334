"""Open files: what is written and not sent yet, locks, errors of writing."""
