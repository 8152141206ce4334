"""Golden runs of replicas whose contents differ although their checksums are good: one of them leaves (I13)."""

DIVERGENCE = {
    "the tail has committed a version that no target before it has": """
        world scrub_s=300.0
        write c1 old
        then
        forge tail odd 2
        write c1 new
        outcome new done
        expect tail committed 3
        read c2 new
        well
        read c2 new
    """,
    "the tail has committed many versions that no target before it has": """
        world scrub_s=300.0
        write c1 old
        then
        forge tail odd 9
        write c1 new
        outcome new done
        never head committed 2
        read c2 new
        well
        read c2 new
    """,
    "the tail lacks a version": """
        world scrub_s=300.0
        write c1 old
        then
        write c1 new
        then
        forge tail old 1
        write c1 X 1
        outcome X done
        expect middle committed 3
        expect head committed 3
        never tail committed 3
        read c2 nXw
        well
        read c2 nXw
    """,
    "the tail has other bytes under the same version": """
        world scrub_s=300.0
        write c1 old
        then
        forge tail odd 1
        write c1 X 2
        outcome X done
        expect middle committed 2
        never tail committed 2
        read c2 olX
        well
        read c2 olX
    """,
    "the head has other bytes under the same version, and is followed": """
        world scrub_s=300.0
        write c1 old
        then
        forge head odd 1
        write c1 X 2
        outcome X done
        expect head committed 2
        read c2 odX
        well
        read c2 odX
    """,
    "the head has lost its record": """
        world scrub_s=300.0
        write c1 old
        then
        lose head
        write c1 X 2
        outcome X done
        read c2 olX
        well
        read c2 olX
    """,
}
