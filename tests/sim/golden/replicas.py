"""Golden runs of chains: what is pending, what is listed, what is sent along and shipped."""

_LONG = "x" * 600

REPLICAS = {
    "who has a version pending asks the last one for it (R1)": """
        write c1 old
        then
        when tail committed do part tail middle 1
        write c1 new
        until tail committed
        sees c1 tail new
        looks c2 middle new
        looks c2 head new
        well
        read c2 new
    """,
    "lists wait for what a syncing target has committed (R1)": """
        write c1 old
        then
        at 0 do kill tail 0.2
        when middle shipped do part tail m1 0.15
        when middle shipped do part tail m2 0.15
        when middle shipped do part tail middle 0.9
        when middle shipped do part m1 middle 0.9
        when middle shipped do part m2 middle 0.9
        when middle shipped do part m1 c2 1.2
        when middle shipped do part m2 c2 1.2
        wait 0.1
        write c1 old!
        until middle shipped
        write c2 newer!
        until tail committed
        wait 0.3
        sees c1 tail newer!
        lists c2 middle 6
        well
        lists c2 middle 6
    """,
    "the tail has shown a version, and only the one before it returns": """
        write c1 old
        then
        when tail committed do part tail middle 9
        write c1 new
        until tail committed
        sees c2 tail new
        at 0 do kill c1 1
        at 0 do kill head 9
        at 0 do kill tail 9
        at 0 do kill middle 1
        wait 0.1
        read c2 new
        well
        read c2 new
    """,
    "what was pending before is dropped when a resync begins (R5)": """
        write c1 old
        then
        at 0 do split middle tail 0.5
        wait 0.01
        when middle staged do kill c1 1
        when middle staged do kill head 12
        when middle staged do kill middle 2
        write c1 new
        wait 8
        never tail staged 2
        never middle committed 2
        read c2 old
        well
        read c2 old
    """,
    "a write waits for a chunk while its head is put out, and is back (R3)": """
        world attempt_s=10.0
        write c1 old
        then
        jam head 4
        at 0 do lone head 3.6
        at 0 do part head middle 3
        wait 0.01
        write c1 new
        wait 0.05
        write c2 x
        wait 4
        outcome new done
        outcome x done
        well
        read c1 xew or new
        read c2 xew or new
    """,
    "a repeat is not answered with what is pending (R6)": """
        world attempt_s=0.5
        write c1 old
        then
        at 0 do split head middle 9
        write c1 new
        during 8 once new looks c2 tail new
        well
        read c2 new
    """,
    "results travel with a chunk, and take the place of others (R6)": """
        write c1 old
        then
        at 0 do kill middle 2
        wait 0.3
        write c1 new
        then
        write c2 x 1
        then
        well
        read c2 nxw
    """,
    "a write comes upon one that the tail has committed": """
        write c1 old
        then
        when tail committed do part tail middle 1.5
        write c1 new
        until tail committed
        write c2 x 1
        wait 0.05
        cancel new
        outcome x done
        read c2 nxw
        well
    """,
    "a long payload arrives as it was": f"""
        write c1 {_LONG}
        then
        read c2 {_LONG}
        well
    """,
    "a change is meant for one version": """
        write c1 old
        then
        write c2 new
        then
        remove c1 gone 1
        outcome gone ChunkChanged
        read c1 new
        well
    """,
    "a successor keeps nothing that is gone": """
        write c1 old
        then
        at 0 do kill tail 1
        wait 0.3
        remove c1 gone
        outcome gone done
        well
        lists c2 head 0
    """,
    "several chunks are missed": """
        write c1 zero
        on 1
        write c1 one
        on 2
        write c1 two
        then
        at 0 do kill middle 1
        wait 0.3
        write c1 TWO
        on 1
        write c1 ONE
        then
        well
        read c2 ONE
    """,
    "an answer never comes: the outcome is unknown": """
        write c1 old
        then
        patience c1 0.3
        at 0 do part head c1 2
        write c1 new
        outcome new OutcomeUnknown
        read c2 new
        well
    """,
    "a write that reaches nobody is not done": """
        write c1 old
        then
        patience c1 1.5
        at 0 do split head c1 3
        write c1 new
        outcome new OutcomeUnknown DeadlineExceeded Unavailable
        well
        read c2 old or new
    """,
    "a head stands still, and its connection does not end": """
        write c1 old
        then
        at 0 do pause head 12
        write c1 new
        wait 8
        ended new done
        read c2 new
        well
    """,
}
