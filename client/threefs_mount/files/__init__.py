"""Open files: unsent bytes, write sessions, locks, write errors."""
