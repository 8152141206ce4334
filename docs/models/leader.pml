/*
 * threefs: manager election and the hand-over of target leases. docs/protocol.md describes both under Leases.
 *
 * Two managers, one target, one KV record. Time is discrete: a tick ages every counter at once and may come at any
 * moment, so any party may be slow for any time. A transaction has three moments (sent, executed, answered) and a
 * heartbeat too; delays between them are arbitrary. A partition from the KV is a transaction that is never executed.
 *
 * Properties
 *   I5  a target that believes it serves and holds a valid lease has not been demoted
 *   I5r a restarted target holds no lease before its old incarnation has been demoted
 *   I8  only the newest epoch commits
 * All rules are on by default; a -D flag takes one away.
 */

#ifndef T
#define T 4                     /* the manager waits T; a lease lasts T/2 from the sending of the heartbeat */
#endif
#ifndef L
#define L 4                     /* length of the primary's own lease record */
#endif
#define MARGIN 1
#define PATIENT (L + MARGIN)    /* a challenger takes over after seeing the record unchanged for so long */

#define STANDBY 0
#define PRIMARY 1

#define NONE 0                  /* transactions */
#define SENT 1
#define DONE 2
#define REFUSED 3

/* ---- KV ---- */
bit holder;                     /* manager 0 at the start */
unsigned epoch : 2;
bit serving = 1;                /* the target's public state */
bit moved[2];                   /* the record has changed since manager i last looked: stands for seq */

/* ---- managers ---- */
typedef Manager {
  bit role;
  bit view = 1;                 /* the target's public state as this manager knows it */
  bit known;                    /* it takes the present incarnation for the one that it knows */
  unsigned epoch : 2;
  unsigned renewed : 4;         /* ticks since the sending of its last good renewal */
  unsigned watched : 4;         /* standby: ticks since it saw the record change */
  unsigned heard : 4;           /* ticks since it last acknowledged a heartbeat, or since it became primary */
  unsigned demotion : 2;        /* transaction */
  bit late;                     /* a demotion given up, but possibly still on its way to the KV */
};
Manager m[2];

/* ---- target ---- */
bit up = 1;
bit believes = 1;               /* it believes that it serves */
bit fresh;                      /* restarted, old incarnation not demoted yet */
unsigned lease : 4;             /* ticks since the sending of the last acknowledged heartbeat */
unsigned beat0 : 2;             /* heartbeat to manager 0: SENT, DONE means acknowledged */
unsigned beat1 : 2;
unsigned sent0 : 4;
unsigned sent1 : 4;
unsigned restarts : 2 = 1;
unsigned epochs : 2 = 3;

hidden byte k;
hidden byte I5_demoted_with_lease, I5_restarted_with_lease, I8_old_epoch_commits;

#define AGE(c, cap) c = (c < (cap) -> c + 1 : c)
#define LEASED (up && lease < T / 2)

inline check() {
  assert(I5_demoted_with_lease || !(LEASED && believes && !serving));
  assert(I5_restarted_with_lease || !(LEASED && believes && fresh))
}

/* ---- rules ---- */
#ifdef NO_STOP_ACK              /* the primary acknowledges however old its own renewal is */
#define MAY_ACK(i) 1
#elif defined(STOP_ACK_AT_FULL_LENGTH)
#define MAY_ACK(i) (m[i].renewed < L)
#else
#define MAY_ACK(i) (m[i].renewed < L / 2)
#endif
#ifdef NO_WAIT_AFTER_ELECTION   /* a new primary takes every target for silent */
#define FIRST_HEARD T
#else
#define FIRST_HEARD 0
#endif
#ifdef ACK_WHILE_DEMOTING
#define UNDECIDED(i) 1
#else
#define UNDECIDED(i) (m[i].demotion == NONE)
#endif
#define FENCED(i) (holder != i || epoch != m[i].epoch)
#ifdef NO_FENCE
#define FENCED_OUT(i) 0
#else
#define FENCED_OUT(i) FENCED(i)
#endif
#ifdef ACK_WHATEVER_IT_BELIEVES /* the heartbeat does not say which chain version the target knows */
#define AGREES(i) 1
#else
#define AGREES(i) (believes == m[i].view)
#endif
#ifdef TAKE_OVER_EARLY
#define PATIENCE 1
#else
#define PATIENCE PATIENT
#endif

inline execute_demotion(i) {
  if
  :: FENCED_OUT(i) || !serving -> m[i].demotion = (m[i].demotion == SENT -> REFUSED : m[i].demotion)
  :: else ->
     printf("manager %d demotes the target\n", i);
     assert(I8_old_epoch_commits || (holder == i && epoch == m[i].epoch));
     serving = 0; fresh = 0;
     m[i].demotion = (m[i].demotion == SENT -> DONE : m[i].demotion);
     check()
  fi
}

inline step_down(i) {
  m[i].role = STANDBY; m[i].watched = 0; m[i].renewed = 0; m[i].heard = 0; m[i].view = 0; m[i].known = 0;
  m[i].demotion = NONE; m[i].epoch = 0; moved[i] = 0;
  printf("manager %d steps down\n", i)
}

proctype Serve(byte i) {
end:
  do
  /* Renew the own lease. Sent, executed and answered at once: that leaves the primary the most time to acknowledge. */
#ifdef RENEW_WITHOUT_EPOCH
  :: d_step { m[i].role == PRIMARY && (m[i].renewed > 0 || holder != i) ->
       holder = i; epoch = m[i].epoch; m[i].renewed = 0; moved[1 - i] = 1 }
#else
  :: d_step { m[i].role == PRIMARY && m[i].renewed > 0 && !FENCED(i) -> m[i].renewed = 0; moved[1 - i] = 1 }
  :: d_step { m[i].role == PRIMARY && FENCED(i) -> step_down(i) }
#endif

  /* challenge */
  :: d_step { m[i].role == STANDBY && moved[i] -> moved[i] = 0; m[i].watched = 0 }
  :: d_step { m[i].role == STANDBY && !moved[i] && holder != i && m[i].watched >= PATIENCE && epochs > 0 && !m[i].late ->
       epochs--; holder = i; epoch++; m[i].epoch = epoch; moved[1 - i] = 1;
       m[i].role = PRIMARY; m[i].renewed = 0; m[i].view = serving; m[i].watched = 0;
       m[i].heard = FIRST_HEARD;
#ifdef INCARNATION_IN_MEMORY    /* the new primary takes the first incarnation that it hears for the known one */
       m[i].known = 1;
#else
       m[i].known = !fresh;
#endif
       printf("manager %d becomes primary of epoch %d\n", i, epoch) }

  /* the target is silent for T, or comes back as a new incarnation: demote it */
  :: d_step { m[i].role == PRIMARY && m[i].view && m[i].demotion == NONE && m[i].heard >= T ->
       m[i].demotion = SENT; printf("manager %d decides to demote: silent\n", i) }
  :: d_step { m[i].demotion == SENT -> execute_demotion(i) }
  :: d_step { m[i].demotion == DONE -> m[i].view = 0; m[i].demotion = NONE; m[i].known = 1 }
  :: d_step { m[i].demotion == REFUSED -> step_down(i) }
#ifdef UNKNOWN_OUTCOME_RESUMES  /* a demotion that timed out is forgotten, and heartbeats acknowledged again */
  :: d_step { m[i].demotion == SENT && !m[i].late -> m[i].demotion = NONE; m[i].late = 1; m[i].heard = 0;
       printf("manager %d gives up its demotion\n", i) }
  :: d_step { m[i].late -> m[i].late = 0; execute_demotion(i) }
#endif

  /* readmit a target that knows that it was demoted */
  :: d_step { m[i].role == PRIMARY && !m[i].view && !FENCED_OUT(i) && up && !believes && m[i].demotion == NONE ->
       serving = 1; m[i].view = 1; m[i].known = 1; m[i].heard = 0; printf("manager %d readmits the target\n", i) }
  od
}

inline beat(i, state, age) {    /* the heartbeat reaches manager i */
  if
  :: m[i].role == PRIMARY && !m[i].known && m[i].view ->        /* a new incarnation: demote at once */
     state = NONE; age = 0;
     if :: m[i].demotion == NONE -> m[i].demotion = SENT; printf("manager %d: new incarnation\n", i) :: else fi
  :: m[i].role == PRIMARY && (m[i].known || !m[i].view) && MAY_ACK(i) && UNDECIDED(i) && AGREES(i) ->
     state = DONE; m[i].heard = 0; printf("manager %d acknowledges a heartbeat\n", i)
  :: else -> state = NONE; age = 0
  fi
}

inline granted(state, age) {
#ifdef LEASE_FROM_RECEIPT
  lease = 0;
#else
  lease = (age < lease -> age : lease);
#endif
  state = NONE; age = 0;
  check()
}

proctype Target() {
end:
  do
  :: d_step { up && beat0 == NONE -> beat0 = SENT; sent0 = 0 }
  :: d_step { up && beat1 == NONE -> beat1 = SENT; sent1 = 0 }
  :: d_step { beat0 == SENT -> beat(0, beat0, sent0) }
  :: d_step { beat1 == SENT -> beat(1, beat1, sent1) }
  :: d_step { beat0 == DONE -> granted(beat0, sent0) }
  :: d_step { beat1 == DONE -> granted(beat1, sent1) }
  :: d_step { up && believes != serving -> believes = serving; printf("target learns %d\n", serving); check() }
  :: d_step { restarts > 0 && up -> restarts--; up = 0; lease = T / 2; beat0 = NONE; beat1 = NONE; sent0 = 0; sent1 = 0;
       m[0].known = 0; m[1].known = 0; fresh = serving; printf("target crashes\n") }
  :: d_step { !up -> up = 1; printf("target restarts\n") }
  od
}

proctype Clock() {
end:
  do
  :: d_step {
       for (k : 0 .. 1) {
         if
         :: m[k].role == PRIMARY ->
            AGE(m[k].renewed, L); AGE(m[k].heard, T)
         :: else -> AGE(m[k].watched, PATIENT)
         fi
       }
       AGE(lease, T / 2);
       if :: beat0 != NONE -> AGE(sent0, T / 2) :: else fi;
       if :: beat1 != NONE -> AGE(sent1, T / 2) :: else fi;
       k = 0;
       printf("tick\n") }
  od
}

active proctype Begin() {
  d_step { m[0].role = PRIMARY; m[0].known = 1; m[1].view = 0 };
  atomic { run Serve(0); run Serve(1); run Target(); run Clock() }
}
