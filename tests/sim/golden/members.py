"""Golden runs of who may serve: leases, deaths, returns. T is 2 s, and a lease lasts 1 s."""

MEMBERS = {
    "nothing serves, and one returns that has missed a write (R7)": """
        write c1 old
        then
        at 0 do kill head 3
        wait 1
        write c1 new
        outcome new done
        at 0 do kill middle 6
        at 0 do kill tail 6
        wait 1
        ask c2 new
        outcome "ask new" done
        well
        read c1 new
    """,
    "a resync has just begun when all that serve die (R7)": """
        write c1 old
        then
        at 0 do kill tail 0.5
        wait 0.2
        write c1 new
        then
        at 0 do split middle tail 8
        wait 1.5
        at 0 do kill head 5
        at 0 do kill middle 5
        wait 1
        ask c2 new
        outcome "ask new" done
        well
        read c1 new
    """,
    "all die, and the last one of them stays away": """
        write c1 old
        then
        at 0 do power tail 60
        at 0 do blackout 1
        wait 10
        read c2 old
        well
    """,
    "all die at once, and the first to return has another disk (R7)": """
        write c1 old
        then
        at 0 do power head 9
        at 0 do power tail 9
        at 0 do power middle 1
        wait 0.5
        exchange middle
        wait 5
        ask c2 old
        outcome "ask old" done
        well
        read c2 old
    """,
    "all die, and the first to return has an older copy of its disk, in which its process writes (I15)": """
        write c1 old
        then
        copy middle
        write c1 new
        then
        wait 3
        at 0 do power head 40
        at 0 do power tail 40
        at 0 do power middle 1
        wait 0.5
        revert middle
        at 8 do kill middle 0.5
        at 16 do kill middle 0.5
        at 24 do kill middle 0.5
        at 32 do kill middle 0.5
        wait 36
        ask c2 new
        outcome "ask new" done
        well
        read c2 new
    """,
    "a disk is exchanged in no time (R8)": """
        write c1 old
        then
        at 0 do wipe middle 0.2
        wait 0.1
        during 1.5 looks c2 middle old
        well
        read c2 old
    """,
    "a silent replica is put out only when its lease is over (R9)": """
        write c1 old
        then
        at 0 do lone middle 4
        at 0 do split middle head 4
        at 0 do split middle tail 4
        at 0 do part m1 c2 4
        at 0 do part m2 c2 4
        wait 0.01
        write c1 new
        during 3 once new looks c2 middle new
        outcome new done
        well
        read c2 new
    """,
    "one that is brought up to date is not read": """
        write c1 old
        then
        at 0 do kill tail 0.5
        wait 0.2
        write c1 new
        then
        at 0 do split middle tail 4
        during 3 looks c2 tail new
        well
        read c2 new
    """,
    "a process that is stopped serves until it says that it does not": """
        write c1 old
        then
        at 0 do part m1 c2 3
        at 0 do part m2 c2 3
        at 0 do part m1 middle 2
        at 0 do part m2 middle 2
        at 0.02 do stop middle 3
        wait 0.4
        write c1 new
        during 1 once new looks c2 middle new
        outcome new done
        well
        read c2 new
    """,
    "something between ends the connections of a replica that lives": """
        write c1 old
        then
        at 0 do part m1 c2 3
        at 0 do part m2 c2 3
        at 0.01 do hup middle m1
        at 0.013 do part m1 middle 1
        at 0.013 do part m2 middle 1
        wait 0.5
        write c1 new
        during 0.8 once new looks c2 middle new
        outcome new done
        changes 0
        well
        read c2 new
    """,
    "the first manager dies, and another one takes its place": """
        write c1 old
        then
        at 0 do kill m1 60
        wait 8
        write c1 new
        outcome new done
        during 4 sees c2 middle new
        at 0 do kill middle 0.5
        wait 4
        changes 3
        well
    """,
    "readers meet a replica without a lease, and go to another one": """
        write c1 old
        then
        at 0 do lone middle 9
        at 0 do part m1 c2 6
        at 0 do part m2 c2 6
        wait 1.5
        repeat 12 read c2 old
        well
    """,
    "a registration of a process that is long gone is heard again": """
        write c1 old
        then
        at 0 do kill middle 0.5
        wait 2
        changes 3
        at 0 do stray middle
        wait 2
        changes 0
        sees c2 middle old
        well
    """,
}
