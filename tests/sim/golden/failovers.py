"""Golden failovers of a chain of three, in the language of `scenarios.py`, and the events that each shows. T is 2 s."""

from tests.sim.golden.disks import DISKS
from tests.sim.golden.divergence import DIVERGENCE
from tests.sim.golden.early import EARLY
from tests.sim.golden.files import FILES
from tests.sim.golden.grants import GRANTS
from tests.sim.golden.links import LINKS
from tests.sim.golden.members import MEMBERS
from tests.sim.golden.moves import MOVES
from tests.sim.golden.replicas import REPLICAS
from tests.sim.golden.requests import REQUESTS

_FAILOVERS = {
    "the head dies before it forwards": """
        write c1 old
        then
        when head forwarding do kill head 1
        write c1 new
        outcome new done
        expect head staged 2
        expect middle committed 2
        never middle staged 3
        read c2 new
        well
        read c1 new
    """,
    "the middle dies after it has persisted": """
        write c1 old
        then
        when middle staged do kill middle 1
        write c1 new
        outcome new done
        expect tail committed 2
        expect head committed 2
        never middle committed 2
        read c2 new
        well
        expect tail shipped 2
    """,
    "the tail dies after it has committed": """
        write c1 old
        then
        when tail committed do power tail 1
        write c1 new
        outcome new done
        expect tail committed 2
        expect middle committed 2
        read c2 new
        well
        read c1 new
    """,
    "a dirty read races a commit": """
        write c1 old
        then
        when tail committed do slow tail 0.5
        write c1 new
        read c2 new
        read c1 new
        outcome new done
        read c2 new
        well
    """,
    "a replica is cut off together with a client": """
        write c1 old
        then
        at 0 do split middle head 6
        at 0 do split middle tail 6
        at 0 do split middle m1 6
        at 0 do split middle m2 6
        at 0 do split c2 head 6
        at 0 do split c2 tail 6
        wait 3
        write c1 new
        outcome new done
        never middle staged 2
        wait 4
        read c2 new
        well
    """,
    "two writers at one head, which dies": """
        write c1 old
        then
        when head forwarding do kill head 1
        write c1 one
        write c2 two 3
        outcome one done
        outcome two done
        read c1 onetwo
        well
        read c2 onetwo
    """,
    "the chain changes under load": """
        write c1 a
        then
        at 0.01 do pause tail 3
        write c1 b
        write c2 c 1
        write c1 d
        write c2 e 1
        outcome d done
        outcome e done
        read c2 de
        well
        read c1 de
    """,
    "the whole chain dies, and the tail returns first": """
        write c1 old
        then
        when tail committed do power head 5
        when tail committed do power middle 5
        when tail committed do blackout 1
        write c1 new
        outcome new done
        read c2 new
        well
        expect tail committed 2
        read c1 new
    """,
    "a resync is aborted by a second death": """
        write c1 old
        then
        at 0 do kill tail 1
        wait 0.5
        write c1 new
        then
        when middle shipped do kill head 1
        wait 1
        write c2 more 3
        outcome more done
        well
        read c1 newmore
    """,
    "a client repeats its write after the head has changed": """
        write c1 old
        then
        when tail committed do kill head 3
        write c1 new
        outcome new done
        never middle staged 3
        read c2 new
        write c2 x
        then
        read c1 xew
        well
        read c2 xew
    """,
    "the manager fails over during a resync": """
        write c1 old
        then
        at 0 do kill tail 1
        wait 0.5
        write c1 new
        then
        when middle shipped do power m1 5
        wait 2
        write c2 more 3
        outcome more done
        wait 3
        well
        read c1 newmore
    """,
    "a target that lost its lease does not answer, though nobody else has taken its place": """
        write c1 old
        then
        at 0 do isolate m1 5
        at 0 do isolate m2 5
        wait 2
        write c1 new
        wait 1
        never head staged 2
        wait 4
        outcome new done
        read c2 new
        well
    """,
    "a write that its process sleeps through is void when it wakes up": """
        write c1 old
        then
        at 0 do part head middle 3
        when head staged do pause c1 4
        when head staged do pause head 5
        wait 0.01
        write c1 new
        wait 3
        write c2 other
        outcome other done
        outcome new done
        read c2 newer
        well
        read c1 newer
    """,
    "power fails everywhere while a version is pending": """
        write c1 old
        then
        when middle staged do blackout 1
        write c1 new
        outcome new done
        read c2 new
        well
        read c1 new
    """,
    "a forward arrives when its target was out of the chain and is back in another place": """
        write c1 old
        then
        at 0 do late head c1 5
        wait 0.1
        write c1 new
        wait 4.5
        outcome new killed
        expect head staged 2
        never middle staged 2
        write c2 other
        outcome other done
        expect middle committed 2
        read c2 other
        well
        read c2 other
    """,
    "a client dies with its write under way, and nobody asks for the chunk again": """
        write c1 old
        then
        at 0 do split middle tail 1
        at 0.3 do kill c1 1
        write c1 new
        outcome new killed
        never head committed 2
        wait 3
        expect head committed 2
        well
    """,
    "a primary that lost its store is cut off together with a replica and a client": """
        write c1 old
        then
        at 0 do rift middle c1 6
        wait 3.5
        write c2 new
        outcome new done
        never middle staged 2
        read c1 new
        well
    """,
    "a disk is exchanged": """
        write c1 old
        then
        at 0 do wipe middle 1
        wait 0.3
        write c1 new
        outcome new done
        well
        expect tail shipped 2
        read c2 new
    """,
    "the head has no room for clients' writes, the others have": """
        at 0 do tight head 6
        wait 0.1
        write c1 new
        outcome new done
        expect middle staged 1
        never head forwarding 1
        read c2 new
        well
        read c1 new
    """,
    "a syncing target shows a version before the one ahead of it hears of that (R1)": """
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
        write c2 new!
        until tail committed
        wait 0.3
        sees c1 tail new!
        looks c2 middle new!
        well
        read c1 new!
    """,
    "a machine is suspended for longer than its lease (R2, R10)": """
        write c1 old
        then
        at 0 do pause middle 3
        at 0 do split head middle 6
        at 0 do part m1 c2 5
        at 0 do part m2 c2 5
        at 2.8 do part m1 middle 2
        at 2.8 do part m2 middle 2
        wait 0.1
        write c1 new
        outcome new done
        never middle staged 2
        during 1.6 looks c2 middle new
        well
        read c2 new
    """,
}

STORIES = {
    **_FAILOVERS,
    **DIVERGENCE,
    **EARLY,
    **MEMBERS,
    **LINKS,
    **MOVES,
    **REPLICAS,
    **REQUESTS,
    **DISKS,
    **FILES,
    **GRANTS,
}
