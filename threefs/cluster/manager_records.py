"""The keys of the manager's records, for the manager and for the command that makes a lost store anew."""

CLUSTER_KEY = b"CONF|cluster"  # ClusterRecord
METADATA_KEY = b"CONF|metadata"  # MetadataStore
FORMAT_KEY = b"CONF|format"  # digits, see data_format
NODE, TARGET, CHAIN, TABLE = b"NODE", b"TARG", b"CHAI", b"TABL"
MOVE, SEEN = b"MOVE", b"SEEN"

FIRST_META_NODE = 1_000_000
#: Ids of targets that a cluster was made with are below it. No id is given out twice: a disk that comes back late must
#: not pass for another target.
FIRST_ADDED_TARGET = 1_000_000_000


def record_key(prefix: bytes, number: int) -> bytes:
    return prefix + b"|" + number.to_bytes(4, "big")


def record_number(key: bytes) -> int:
    return int.from_bytes(key[-4:], "big")


#: After the store was restored or made anew, so many ids are skipped: they may have been given out since.
SKIPPED_IDS = 4096

#: A node that says that it knows a target of a higher number is not believed. So a wrong number that counts leaves half
#: of the 32 bits for targets that are made later.
LAST_BELIEVED_TARGET = 1 << 31
