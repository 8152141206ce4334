"""Golden runs in which a member of the chain moves to another storage process, s4, which joins first."""

MOVES = {
    "the head moves to another disk while clients write": """
        world spares=1
        write c1 old
        then
        at 0 do join s4
        at 0.5 do drain head 60
        wait 0.7
        write c1 new
        wait 6
        outcome new done
        write c1 newer
        outcome newer done
        expect s4 committed 3
        well
        read c1 newer
    """,
    "the primary manager is killed in the middle of a move": """
        world spares=1 managers=2
        write c1 old
        then
        at 0 do join s4
        at 0.5 do drain tail 60
        at 0.65 do kill m1 3
        wait 12
        write c1 new
        outcome new done
        expect s4 committed 2
        well
        read c1 new
    """,
    "the added target dies while it is filled": """
        world spares=1
        write c1 old
        then
        at 0 do join s4
        at 0.5 do drain middle 60
        when s4 committed do kill s4 3
        wait 12
        write c1 new
        outcome new done
        expect s4 committed 2
        well
        read c1 new
    """,
    "all members but the leaving one die": """
        world spares=1
        write c1 old
        then
        at 0 do join s4
        at 0.5 do drain head 60
        at 1.0 do power middle 5
        at 1.0 do power tail 5
        at 1.0 do power s4 5
        wait 14
        write c1 new
        outcome new done
        well
        read c1 new
    """,
    "each chain gets a fourth copy and then loses two, while clients write": """
        world spares=1
        write c1 old
        then
        at 0 do join s4
        at 1.5 do copies x4
        wait 5
        write c1 new
        outcome new done
        expect s4 committed 2
        at 6 do copies x2
        wait 8
        write c1 newer
        outcome newer done
        well
        read c1 newer
    """,
    "the head is out of service while clients write, and returns": """
        world
        write c1 old
        then
        at 0.1 do offline head 6
        wait 3
        write c1 new
        outcome new done
        wait 6
        write c1 newer
        outcome newer done
        well
        read c1 newer
    """,
    "the primary manager is killed while a target is out of service": """
        world managers=2
        write c1 old
        then
        at 0.1 do offline middle 9
        at 1.0 do kill m1 3
        wait 4
        write c1 new
        outcome new done
        wait 8
        well
        read c1 new
    """,
    "the head rotates under load, and the next one dies": """
        world
        write c1 old
        then
        at 0.1 do rotate head
        write c1 new
        at 0.3 do kill middle 3
        wait 8
        outcome new done
        write c1 newer
        outcome newer done
        well
        read c1 newer
    """,
    "a target dies while its chain loses another one": """
        world
        write c1 old
        then
        at 0.3 do copies x2
        at 0.35 do kill middle 4
        wait 10
        write c1 new
        outcome new done
        well
        read c1 new
    """,
}
