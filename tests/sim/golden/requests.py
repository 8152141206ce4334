"""Golden runs of requests: of several rows, given up by their caller, too large for what is free."""

REQUESTS = {
    "a request of two rows is given up while one of them reads the disk (I14)": """
        batch c1 both 0@0=oldold 1@0=oldold
        then
        cold head 1
        at 0 do stall head 1
        at 0 do split head middle 1.2
        batch c1 both 0@0=newest 1@2=new
        wait 0.1
        cancel both
        wait 0.05
        put c2 /other something
        wait 1.5
        on 1
        read c2 oldold or olnewd
        on 0
        read c2 oldold or newest
        well
        rest
    """,
    "a write is given up while its chunk is read from the disk (I14)": """
        write c1 oldold
        then
        cold head 1
        at 0 do stall head 1
        write c1 new 2
        wait 0.1
        cancel new
        wait 0.1
        write c2 x 1
        outcome x done
        read c2 oxdold or oxnewd
        well
        rest
    """,
    "a read is given up while the disk is slow (I20)": """
        write c1 old
        then
        cold head 1
        cold middle 1
        cold tail 1
        at 0 do stall head 1
        at 0 do stall middle 1
        at 0 do stall tail 1
        ask c2 old
        wait 0.1
        cancel "ask old"
        outcome "ask old" cancelled
        wait 0.1
        well
        rest
    """,
    "a write is given up while it waits for its successor": """
        write c1 old
        then
        at 0 do split head middle 1
        write c1 new
        wait 0.1
        cancel new
        wait 0.1
        write c2 x
        outcome x done
        wait 1
        read c2 xld or xew
        well
        rest
    """,
    "rows are answered each for itself": """
        batch c1 two 0@0=aa 1@4=bbb
        outcome two done
        results two 2 7
        read c2 aa
        on 1
        lists c2 head 7
        well
    """,
    "a write waits for room among what is on its way": """
        budget c1 10
        write c1 ten_bytes.
        on 1
        write c1 and_others
        on 2
        write c1 and_others!
        outcome ten_bytes. done
        outcome and_others done
        well
        rest
    """,
    "a refused write gives its room back (I20)": """
        write c1 old
        then
        at 0 do kill head 1
        write c1 new
        outcome new done
        well
        rest
    """,
    "many versions are looked at": """
        repeat 16 write c1 x
        then
        scrub head
        scrub tail
        sound
        well
        rest
    """,
    "two changes of a client, and a connection that breaks": """
        write c1 old
        then
        at 0 do split c1 head 0.5
        at 0.3 do cut c1 head
        at 0.51 do cut c1 head
        write c1 one
        write c1 two
        write c1 three
        write c1 four
        write c1 five
        outcome one done
        outcome two done
        outcome three done
        outcome four done
        outcome five done
        read c2 fivee
        well
    """,
}
