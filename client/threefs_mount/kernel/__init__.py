"""Translates between the kernel's terms and those of threefs: attributes, credentials, error numbers."""
