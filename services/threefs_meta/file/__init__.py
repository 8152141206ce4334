"""Files: how they are made, opened, made longer and cut."""
