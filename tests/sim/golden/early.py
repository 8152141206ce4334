"""Golden runs of changes that come ahead of their forward (P1 to P12)."""

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
    "a write that failed at the head gives way to the next of its number (P5)": """
        world scrub_s=300.0 attempt_s=10.0
        write c1 oldold
        then
        cold head 1
        flip head
        at 0 do stall head 0.1
        when tail early do kill c1 30
        write c1 A 1
        until tail early
        wait 0.3
        never head staged 2
        cold head 0
        write c2 B 1
        outcome B done
        expect middle staged 2
        read c2 oBdold
        well
        read c2 oBdold
    """,
    "a version that came ahead and that nobody forwards is dropped (P10)": """
        world scrub_s=300.0 attempt_s=10.0
        write c1 oldold
        then
        cold head 1
        flip head
        at 0 do stall head 0.1
        when tail early do kill c1 30
        write c1 A 1
        until tail early
        wait 12
        never tail staged 2
        cold head 0
        scrub head
        wait 1
        well
        read c2 oldold
    """,
}
