/* What all models share: mbarriers of PTX, and happens-before. A model defines AGENTS, BARRIERS and WAITERS and includes this.

   Spin interleaves sequentially consistent steps, so that an order which only a release, an acquire or a fence gives would
   never be missed. Each model therefore carries what everybody knows. An agent is a thread, or a group of lanes that act
   alike. An event is the latest write of a location by one agent, or its latest read; it is one bit. known[a] has the bits of
   all latest events that happen before what agent a does next. An arrival or a release hands the agent's bits to the barrier or
   counter, a wait or an acquire takes them from there. A new event takes its bit away from everybody else. A write must know
   the location's latest write and every latest read, a read the latest write: otherwise there is a race, and an assertion
   fails although the value may be right. */

#define EVERYTHING 1073741823    /* before the first event there is nothing to know */
#define NEVER 255                /* this waiter does not wait for this barrier */

typedef Mbarrier {
  byte count;                    /* arrivals that complete a phase */
  byte pending;                  /* of them missing */
  short bytes;                   /* transactions expected and not complete */
  byte phase;                    /* phases completed: test_wait.parity passes for parity P when phase % 2 != P */
  int arrived;                   /* known to those who arrived in this phase */
  int completed;                 /* ... in completed phases */
  byte needed[WAITERS];          /* how many completed phases each waiter's next wait is meant for */
};

Mbarrier barrier[BARRIERS];
int known[AGENTS];
hidden byte i_;
hidden byte ordered, right_phase, turn_kept;   /* so that a failed assertion has a name */

/* What a fresh barrier's waiter w needs: 1 for the first phase, 0 where its first wait is to pass at once (parity 1). */
#define waits(b, w, first) barrier[b].needed[w] = first

inline init_barrier(b, n) {
  barrier[b].count = n;
  barrier[b].pending = n;
  barrier[b].completed = EVERYTHING;
  for (i_ : 0 .. WAITERS - 1) { barrier[b].needed[i_] = NEVER }
}

inline init_agents() {
  for (i_ : 0 .. AGENTS - 1) { known[i_] = EVERYTHING }
}

inline complete_phase(b) {
  if
  :: barrier[b].pending == 0 && barrier[b].bytes == 0 ->
     barrier[b].phase++;
     barrier[b].pending = barrier[b].count;
     barrier[b].completed = barrier[b].completed | barrier[b].arrived;
     barrier[b].arrived = 0;
     /* Whoever still needs an earlier phase has missed its turn: it would wait for one more, or take that for its own. */
     for (i_ : 0 .. WAITERS - 1) {
       turn_kept = barrier[b].phase <= barrier[b].needed[i_];
       assert(turn_kept)
     }
  :: else
  fi
}

inline arrive(b, agent) {
  d_step {
    barrier[b].pending--;
    barrier[b].arrived = barrier[b].arrived | known[agent];
    complete_phase(b)
  }
}

/* An arrival that orders nothing, for seeded defects. */
inline arrive_relaxed(b) {
  d_step { barrier[b].pending--; complete_phase(b) }
}

inline arrive_expect(b, agent, n) {
  d_step {
    barrier[b].bytes = barrier[b].bytes + n;
    barrier[b].pending--;
    barrier[b].arrived = barrier[b].arrived | known[agent];
    complete_phase(b)
  }
}

inline complete_bytes(b, agent, n) {
  d_step {
    barrier[b].bytes = barrier[b].bytes - n;
    barrier[b].arrived = barrier[b].arrived | known[agent];
    complete_phase(b)
  }
}

/* Waiter w waits for `parity`. It must have met the phase that it is meant for, and no other of the same parity. */
inline await(b, w, parity, agent) {
  atomic {
    barrier[b].phase % 2 != parity ->
    right_phase = barrier[b].phase == barrier[b].needed[w];
    assert(right_phase);
    barrier[b].needed[w]++;
    known[agent] = known[agent] | barrier[b].completed
  }
}

#ifndef FORGET_MORE
#define FORGET_MORE(event) skip   /* a model with counters or packets that carry knowledge takes the bit from those as well */
#endif

inline happen(agent, event) {
  for (i_ : 0 .. AGENTS - 1) { known[i_] = known[i_] & ~(event) }
  for (i_ : 0 .. BARRIERS - 1) {
    barrier[i_].arrived = barrier[i_].arrived & ~(event);
    barrier[i_].completed = barrier[i_].completed & ~(event)
  }
  FORGET_MORE(event);
  known[agent] = known[agent] | (event)
}

/* `others`: the latest reads of the location, and its latest writes by other agents. */
inline write(agent, event, others) {
  d_step {
    ordered = (known[agent] & ((event) | (others))) == ((event) | (others));
    assert(ordered);
    happen(agent, event)
  }
}

inline read(agent, event, writes) {
  d_step {
    ordered = (known[agent] & (writes)) == (writes);
    assert(ordered);
    happen(agent, event)
  }
}
