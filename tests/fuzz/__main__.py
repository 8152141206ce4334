"""`python -m tests.fuzz`. The work is in a module of its own: spawned processes cannot import this one."""

from tests.fuzz.campaign import main

if __name__ == "__main__":
    main()
