"""How long a client may believe that names come into a directory by itself alone, and how long others wait for that.

A client that has claimed a directory learns from the answer to each name that it adds there whether the claim stands.
It may rely on that for CLAIM_S from when it *sent* the question: the transaction that has seen the claim began later.
Whoever else wants to add a name writes first that the claim is recalled. That commits after every transaction that has
seen it standing; so RECALL_S later, by the clock of who has seen it recalled, nobody relies on it any more.
"""

CLAIM_S = 0.25
#: Longer by more than any two clocks differ in their speed.
RECALL_S = 0.3
