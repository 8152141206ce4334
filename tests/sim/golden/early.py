"""Golden runs of changes that come ahead of their forward (P1 to P13)."""

#: The bytes of the chunk are damaged at the head, and its writer is killed: only the replicas behind the head have the
#: version, and no process forwards it.
_EARLY_AT_THE_TAIL = """
        world scrub_s=300.0 attempt_s=10.0
        write c1 oldold
        then
        cold head 1
        flip head
        at 0 do stall head 0.1
        when tail early do kill c1 30
        write c1 A 1
        until tail early
"""

#: The head's disk has refused a write under fence 1, which came ahead at both others; then the fence is raised.
_BEHIND_A_FENCE = (
    _EARLY_AT_THE_TAIL.replace("write c1 oldold", "under c1 1\n        write c1 oldold")
    + """
        wait 0.3
        never head staged 2
        expect middle early 2
        fence c2 1
        outcome fence done
    """
)

EARLY = {
    "a version that came ahead is not shown (P4, P10)": """
        world attempt_s=10.0
        write c1 old
        then
        jam head 2
        write c1 new
        until tail early
        during 1 sees c2 tail old
        during 0.5 sees c2 middle old
        lists c2 tail 3
        never tail staged 2
        never middle staged 2
        outcome new done
        expect tail early 2
        expect middle early 2
        expect tail staged 2
        read c2 new
        well
        read c1 new
    """,
    "the head dies before its own copy is durable, and the next one has it (P7)": """
        write c1 old
        then
        jam head 3
        when tail early do kill head 4
        write c1 new
        until tail early
        outcome new done
        never head staged 2
        expect middle committed 2
        expect tail staged 2
        read c2 new
        well
        read c1 new
    """,
    "the middle dies with a version that came ahead": """
        write c1 old
        then
        jam head 1
        when middle early do kill middle 3
        write c1 new
        outcome new done
        never middle staged 2
        expect tail staged 2
        expect head committed 2
        read c2 new
        well
        read c1 new
    """,
    "the tail dies with a version that came ahead": """
        write c1 old
        then
        jam head 1
        when tail early do power tail 3
        write c1 new
        outcome new done
        expect middle committed 2
        read c2 new
        well
        read c1 new
    """,
    "all die with a version that came ahead, and the middle is back first": """
        write c1 old
        then
        jam head 9
        write c1 new
        until tail early
        at 0 do kill c1 20
        at 0 do power head 9
        at 0 do power tail 9
        at 0 do power middle 3
        wait 6
        read c2 new
        well
        read c2 new
    """,
    "a write that failed at the head gives way to the next of its number (P5)": _EARLY_AT_THE_TAIL
    + """
        wait 0.3
        never head staged 2
        cold head 0
        write c2 B 1
        outcome B done
        expect middle staged 2
        changes 0
        read c2 oBdold
        well
        read c2 oBdold
    """,
    "a version that came ahead and that nobody forwards is dropped (P10)": _EARLY_AT_THE_TAIL
    + """
        wait 12
        never tail staged 2
        cold head 0
        scrub head
        wait 1
        well
        read c2 oldold
    """,
    "the head dies after a fence that overtook a version which came ahead (P13)": _BEHIND_A_FENCE
    + """
        at 0 do kill head 4
        wait 5
        never middle staged 2
        never tail staged 2
        cold head 0
        read c2 oldold
        well
        read c2 oldold
    """,
    "all die after a fence that overtook a version which came ahead (P13)": _BEHIND_A_FENCE
    + """
        at 0 do power head 9
        at 0 do power tail 9
        at 0 do power middle 3
        wait 6
        cold head 0
        read c2 oldold
        well
        read c2 oldold
    """,
}
