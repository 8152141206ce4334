"""Files: new inodes, layouts, lengths and truncates."""
