"""Golden runs of files: names, lengths, locks, and what clients hold while they live."""

_MANY = "abcdefghijklmnop"

FILES = {
    "many files are made, and each has its own bytes": "\n".join(
        [f"put c1 /{name} {name}" for name in _MANY] + [f"get c2 /{name} {name}" for name in _MANY]
    ),
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
    "the length is asked after a write of unknown outcome has ended": """
        put c1 /file 0
        patience c1 3
        open c1 /file one
        jam head 8
        tries one 0123456789
        outcome 0123456789 OutcomeUnknown
        parts one
        wait 40
        covers c2 /file
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
        outcome "unlock one" done
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
    "what was written under a lost lock comes when the next one has it (I18)": """
        put c1 /file 0
        open c1 /file one
        open c2 /file other
        lock one
        outcome "lock one" done
        at 0 do isolate c1 45
        wait 0.01
        tries one 1
        wait 40
        lock other
        wait 0.5
        ended "lock other" done
        into other 2
        wait 30
        outcome 1 LockLost SessionLost
        get c2 /file 2
    """,
    "an answer about a name is lost, and asked for again": """
        put c1 /one first
        at 0 do part t1 c1 3
        wait 0.01
        move c1 /one /two
        get c2 /two first
        at 0 do part t1 c1 3
        at 0.5 do cut t1 c1
        wait 0.01
        unlink c1 /two
        put c1 /two second
        get c2 /two second
    """,
    "the length of a file is told when it is closed": """
        put c1 /file 0123456789
        get c2 /file 0123456789
        put c1 /file x
        get c2 /file x
        move c1 /file /other
        put c1 /file new
        get c2 /other x
        get c2 /file new
        unlink c1 /other
        whole
    """,
    "the next holder of a lock reads what the last one has written": """
        put c1 /file 0
        open c1 /file one
        open c2 /file other
        lock one
        outcome "lock one" done
        holds one 1
        at 0 do split c1 head 2
        wait 0.01
        unlock one
        wait 0.1
        lock other
        wait 0.1
        once "lock other" get c2 /file 1
        outcome "unlock one" done
        get c2 /file 1
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
