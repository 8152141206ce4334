"""Golden runs of request-to-send: all clients share one slot, which the first one has, and nothing reaches that one."""

_BEGIN = """
        world receive_senders=1 receive_bytes=40000
        write c1 x*40000
        then
        wait 1
        at 0 do split c1 head 0.8
        at 0 do split c1 middle 0.8
        at 0 do split c1 tail 0.8
        wait 0.05
        ask c1 x*40000
        wait 0.05
        ask c2 x*30000
        wait 0.2
"""

GRANTS = {
    "an answer waits for its grant, and comes when the one before it has come (I20)": _BEGIN
    + """
        waits c2
        outcome "ask x*30000" done
        outcome "ask x*40000" done
        well
        rest
    """,
    "a read is given up while its answer waits for a grant (I20)": _BEGIN
    + """
        waits c2
        cancel "ask x*30000"
        outcome "ask x*30000" cancelled
        read c2 x*20000
        outcome "ask x*40000" done
        well
        rest
    """,
    "a read is given up while its answer may come (I20)": _BEGIN
    + """
        waits c2
        cancel "ask x*40000"
        wait 0.1
        ended "ask x*30000" done
        well
        rest
    """,
    "a client dies with the slots of its host, and the others get them at once (I20)": _BEGIN
    + """
        waits c2
        at 0 do kill c1 3
        wait 0.1
        ended "ask x*30000" done
        well
    """,
    "a service dies after it has announced an answer (I20)": _BEGIN
    + """
        waits c2
        at 0 do kill head 1
        outcome "ask x*30000" done
        outcome "ask x*40000" done
        well
        rest
    """,
    "a client dies while its answer waits for a grant (I20)": _BEGIN
    + """
        waits c2
        at 0 do kill c2 3
        outcome "ask x*40000" done
        wait 1
        well
    """,
    "a client whose answer waits for a grant cannot be reached for a while (I20)": _BEGIN
    + """
        waits c2
        at 0 do split c2 head 2
        outcome "ask x*30000" done
        outcome "ask x*40000" done
        well
        rest
    """,
    "the host has a client that hangs with all of its slots (I20)": _BEGIN
    + """
        waits c2
        at 0 do pause c1 3
        wait 1.5
        ended "ask x*30000" done
        wait 2
        outcome "ask x*40000" done
        well
        rest
    """,
}
