"""Advisory locks of files: which exclude each other, who waits for whom, and how those of a dead client end."""
