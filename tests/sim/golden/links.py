"""Golden runs in which only a link between two storage processes fails. T is 2 s: it takes at most 4 T until writes go
on, which is the patience of the writers here."""

LINKS = {
    "the link between head and middle fails": """
        write c1 old
        then
        at 0 do split head middle 60
        wait 0.1
        patience c1 8
        write c1 new
        outcome new done
        wait 4
        changes 3
        sees c2 middle new
        write c1 more
        outcome more done
        expect middle committed 3
        well
        read c1 more
    """,
    "the link between middle and tail fails": """
        write c1 old
        then
        at 0 do split middle tail 30
        wait 0.1
        patience c1 8
        write c1 new
        outcome new done
        changes 1
        patience c1 0.5
        wait 10
        write c1 more
        outcome more done
        changes 0
        during 2 looks c2 tail more
        well
        read c1 more
    """,
    "only what the middle sends to the tail is lost": """
        write c1 old
        then
        at 0 do part middle tail 30
        wait 0.1
        patience c1 8
        write c1 new
        outcome new done
        changes 1
        well
        read c1 new
    """,
    "only what the middle answers is lost": """
        write c1 old
        then
        at 0 do part middle head 30
        wait 0.1
        patience c1 8
        write c1 new
        outcome new done
        well
        read c1 new
    """,
    "a head that reaches nobody else is put out itself": """
        write c1 old
        then
        at 0 do split head middle 60
        at 0 do split head tail 60
        wait 0.1
        write c1 new
        outcome new done
        wait 8
        patience c2 0.5
        write c2 more
        outcome more done
        never head committed 3
        well
        read c1 more
    """,
    "a link fails while too few others serve": """
        write c1 old
        then
        at 0 do kill tail 60
        wait 6
        changes 1
        at 0 do split head middle 20
        wait 0.1
        patience c1 12
        write c1 new
        outcome new OutcomeUnknown DeadlineExceeded
        changes 0
        well
        read c1 new
    """,
    "a link fails while the last one is brought up to date": """
        write c1 old
        then
        at 0 do kill tail 5
        at 5 do split middle tail 30
        wait 6
        patience c1 8
        write c1 new
        outcome new done
        patience c1 0.5
        wait 4
        write c1 more
        outcome more done
        well
        read c1 more
    """,
    "a replica that is slow is no failed link": """
        write c1 old
        then
        at 0 do hang middle 9
        wait 0.1
        write c1 new
        wait 8
        changes 0
        outcome new done
        well
        read c1 new
    """,
    "a link that works again in time changes nothing": """
        write c1 old
        then
        at 0 do split head middle 3.5
        wait 0.1
        write c1 new
        outcome new done
        wait 6
        changes 0
        well
        read c1 new
    """,
}
