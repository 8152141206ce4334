"""Who may do what: credentials, permissions, access control lists, extended attributes."""
