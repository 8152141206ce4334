"""Stories of files: names, lengths, locks, and what clients hold while they live."""

FILES = {
    "a file is removed, and its neighbour stays": """
        put c1 /one first
        put c1 /two second
        unlink c1 /one
        wait 60
        get c2 /two second
    """,
    "a file has two writers": """
        put c1 /file 0
        open c1 /file long
        open c2 /file short
        into long 0123456789
        into short 01
        close long
        close short
        get c1 /file 0123456789
    """,
    "a file is cut, and made longer again": """
        put c1 /file secret
        cut c1 /file 2
        cut c1 /file 6
        get c2 /file se~~~~
    """,
    "a lock excludes others": """
        put c1 /file 0
        open c1 /file one
        open c2 /file other
        lock one
        outcome "lock one" done
        lock other
        outcome "lock other" Locked
        unlock one
        lock other
        outcome "lock other" done
        close one
        close other
    """,
    "two want a lock in the same moment": """
        put c1 /file 0
        open c1 /file one
        open c2 /file other
        lock one
        lock other
        either "lock one" "lock other"
    """,
    "a lock is held for many leases": """
        put c1 /file 0
        open c1 /file one
        open c2 /file other
        lock one
        outcome "lock one" done
        wait 100
        lock other
        outcome "lock other" Locked
        into one 1
        close one
        lock other
        outcome "lock other" done
        get c2 /file 1
    """,
}
