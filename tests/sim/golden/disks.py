"""Golden runs of disks: power, damage, blocks."""

#: More than a disk keeps room for.
_MANY_CHUNKS = "\n".join(f"on {number}\nwrite c1 x*65536" for number in range(1, 70))
_WORDS = ("one", "two", "six", "ten", "all", "any", "end")

DISKS = {
    "power fails everywhere after a write is done": "\n".join(
        [f"write c1 {word}\nthen\nat 0 do blackout 1\nwait 4\nread c2 {word}" for word in _WORDS] + ["well", "sound"]
    ),
    "power fails while a disk is slow, and only that replica is back": """
        write c1 old
        then
        at 0 do drag head 3
        at 0.2 do kill c1 9
        at 0.2 do power middle 6
        at 0.2 do power tail 6
        at 0.2 do power head 1
        write c1 new
        wait 4
        read c2 old or new
        well
        sound
    """,
    "files that fill the disk of a replica are removed while it is out of its chain": """
        world ballast_bytes=1048576
        write c1 old
        then
        at 0 do small tail 6
        wait 3
        write c1 new
        outcome new done
        never tail staged 2
        wait 5
        well
        expect middle shipped 2
        read c2 new
    """,
    "a target stays out of its chain while its disk takes nothing, though it says that it has room": """
        write c1 old
        then
        at 0 do quota tail 10
        wait 0.1
        write c1 new
        outcome new done
        never tail staged 2
        wait 8
        changes 1
        well
        expect middle shipped 2
    """,
    "the disk of a replica hangs, and its process lives": """
        world stall_s=2.0
        write c1 old
        then
        at 0 do hang middle 20
        wait 0.1
        write c1 new
        wait 8
        changes 1
        outcome new done
        wait 14
        well
        read c2 new
    """,
    "an old version is read while a new one is written": """
        write c1 old
        then
        cold middle 1
        at 0 do hang tail 0.5
        wait 0.01
        write c1 new
        until middle staged
        sees c2 middle old
        outcome new done
        well
        sound
    """,
    "a version is read for so long that its block is free": """
        write c1 one
        then
        cold head 1
        cold middle 1
        cold tail 1
        at 0 do stall head 1
        at 0 do stall middle 1
        at 0 do stall tail 1
        ask c2 one
        wait 0.05
        write c1 two
        wait 0.05
        write c1 six
        wait 0.05
        on 1
        write c1 ten
        wait 0.05
        ended ten done
        outcome "ask one" done DeadlineExceeded
        well
        sound
    """,
    "a bit flips in what nobody reads": """
        write c1 old
        then
        flip middle
        wait 4
        expect middle repaired 1
        well
    """,
    "a reader meets a bit that has flipped": """
        world scrub_s=300.0
        write c1 old
        then
        flip middle
        cold middle 1
        looks c2 middle old
        wait 1
        expect middle repaired 1
        well
    """,
    "one that is brought up to date has no room, and the writes go on": f"""
        write c1 old
        then
        at 0 do kill tail 0.5
        wait 0.2
        write c1 new
        then
        at 0 do split middle tail 1.5
        wait 1
        at 0 do full tail 20
        {_MANY_CHUNKS}
        wait 3
        on 70
        write c1 y*65536
        wait 6
        ended y*65536 done
        well
        read c2 y*65536
    """,
    "a chunk is locked for as long as the scrubber takes": """
        write c1 old
        then
        at 0 do split head middle 4
        write c1 new
        wait 3.5
        outcome new done
        well
    """,
}
