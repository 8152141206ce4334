"""Access: credentials, permissions, access control lists, extended attributes."""
