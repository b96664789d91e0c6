/* The hand-over of the token between steps: launcher.cuh (hand_over_token, next_token), consumer.cuh (take_token), storer.cuh
   (argmax_entry, store_logits); and the order of the KV cache where attention is recomputed by every SM (FUSED): a fence before
   the argmax entry is published, another behind the polls.

   Each SM's launcher waits until the last token was taken by all its warps, writes the token word and lets them go; from the entries
   of all SMs, two packets each, it finds the next token. Entries are double-buffered by step. SMs of the bit mask WORK have work
   in the head, whose consumers then hand over to their storer; the others' storers publish an empty entry at once.

   Abstracted: a step's layers are one append to the KV cache, which all SMs read a step later, and one tile; partials.pml's
   buffers are a counter that hands over what both sides know; a value is its step + 1. Warps are lane 0 and the other lanes; the
   launcher's lanes each poll entries of their own. Asserted besides turns and races: token and entries are those of the step.

   sizes: -DSMS=2 -DCONSUMERS=1 -DSTEPS=4 -DWORK=2
   sizes: -DSMS=2 -DCONSUMERS=1 -DSTEPS=3 -DWORK=3 -DFUSED
   sizes: -DSMS=2 -DCONSUMERS=2 -DSTEPS=2 -DWORK=1
   nightly: -DSMS=2 -DCONSUMERS=2 -DSTEPS=4 -DWORK=2 -DFUSED
   nightly: -DSMS=3 -DCONSUMERS=1 -DSTEPS=3 -DWORK=5
   nightly: -DSMS=3 -DCONSUMERS=1 -DSTEPS=2 -DWORK=3 -DFUSED
   defect: -DARGMAX_BUFFERS=1               one buffer of entries for all steps
   defect: -DNO_TAKEN_WAIT                  the launcher does not wait until the last token was taken
   defect: -DTAKEN_PARITY=0                 ... waits for the wrong parity
   defect: -DREADY_PARITY=1                 warps wait for the wrong parity
   defect: -DNO_READY_FLIP                  warps keep their parity
   defect: -DTAKEN_ARRIVALS=1               the token counts as taken when one warp has taken it
   defect: -DTAKEN_ARRIVALS=3               ... never
   defect: -DEARLY_READY                    the launcher lets warps go before it has written the word
   defect: -DEARLY_TAKEN                    a warp says taken before it has read the word
   defect: -DNO_SYNCWARP                    ... before its other lanes have
   defect: -DRELAXED_READY                  the launcher's arrival orders nothing
   defect: -DRELAXED_TAKEN                  nor do those of its warps
   defect: -DONE_TAG                        the launcher looks at the first packet's tag only
   defect: -DFUSED -DWORK=3 -DSOME_ENTRIES ... at its own entry only
   defect: -DFUSED -DWORK=3 -DNO_RELEASE    no fence before the entry is published
   defect: -DFUSED -DWORK=3 -DNO_ACQUIRE    no fence behind the polls
   defect: -DFUSED -DWORK=3 -DNO_LAUNCHER_SYNCWARP   lane 0 lets warps go without what the other lanes have acquired */

#ifndef ARGMAX_BUFFERS
#define ARGMAX_BUFFERS 2
#endif
#ifndef TAKEN_PARITY
#define TAKEN_PARITY 1
#endif
#ifndef READY_PARITY
#define READY_PARITY 0
#endif
#ifndef TAKEN_ARRIVALS
#define TAKEN_ARRIVALS (CONSUMERS + 1)
#endif

#define works(sm) ((WORK >> (sm)) & 1)

/* Warps of an SM: consumers, the storer, the launcher; two agents each. Packets know what was released with them. */
#define STORER CONSUMERS
#define LAUNCHER (CONSUMERS + 1)
#define WARPS (CONSUMERS + 2)
#define AGENT(sm, warp, lanes) (((sm) * WARPS + (warp)) * 2 + (lanes))
#define LANE_0 0
#define OTHERS 1
#define PACKET(buffer, sm, i) (((buffer) * SMS + (sm)) * 2 + (i))
#define PACKETS (4 * SMS)
#define SEEN(sm, lanes) (SMS * WARPS * 2 + PACKETS + (sm) * 2 + (lanes))   /* what the launcher's polls saw, until a fence */
#define RELEASED(packet) (SMS * WARPS * 2 + (packet))
#define AGENTS (SMS * WARPS * 2 + PACKETS + SMS * 2)

#define READY(sm) (2 * (sm))
#define TAKEN(sm) (2 * (sm) + 1)
#define BARRIERS (2 * SMS)
#define WAITERS (CONSUMERS + 2)

#include "synchronisation.h"

#define SM_BITS (1 + 2 * (CONSUMERS + 1) + 2)
#define WORD_WRITE(sm) (1 << ((sm) * SM_BITS))
#define WORD_READ(sm, warp, lanes) (1 << ((sm) * SM_BITS + 1 + 2 * (warp) + (lanes)))
#define WORD_READS(sm) (((1 << (2 * (CONSUMERS + 1))) - 1) << ((sm) * SM_BITS + 1))
#define APPEND(sm, step) (1 << ((sm) * SM_BITS + SM_BITS - 2 + (step) % 2))   /* positions of even and odd steps */

byte word[SMS];
byte tag[PACKETS], entry[PACKETS];
byte parts[SMS * CONSUMERS];
hidden byte right_value;

inline learn(agent, from) { known[agent] = known[agent] | known[from] }

#ifdef RELAXED_TAKEN
#define say_taken(warp) arrive_relaxed(TAKEN(sm))
#else
#define say_taken(warp) arrive(TAKEN(sm), AGENT(sm, warp, LANE_0))
#endif

inline look(warp) {
  read(AGENT(sm, warp, OTHERS), WORD_READ(sm, warp, OTHERS), WORD_WRITE(sm));
  read(AGENT(sm, warp, LANE_0), WORD_READ(sm, warp, LANE_0), WORD_WRITE(sm));
  right_value = word[sm] == step + 1;
  assert(right_value)
#ifndef NO_SYNCWARP
  ;
  learn(AGENT(sm, warp, LANE_0), AGENT(sm, warp, OTHERS))
#endif
}

/* What touches a warp's own state, or memory whose races are found by what agents know, needs no step of its own. */
inline take_token(warp) {
  atomic {
    await(READY(sm), warp, ready_parity, AGENT(sm, warp, LANE_0));
    learn(AGENT(sm, warp, OTHERS), AGENT(sm, warp, LANE_0));
#ifndef NO_READY_FLIP
    ready_parity = 1 - ready_parity;
#endif
#ifdef EARLY_TAKEN
    say_taken(warp)
#endif
  }
  atomic {
    look(warp);
#ifndef EARLY_TAKEN
    say_taken(warp)
#endif
  }
}

proctype consumer(byte sm; byte c) {
  byte step, from;
  bit ready_parity = READY_PARITY;
  for (step : 0 .. STEPS - 1) {
    take_token(c);
    if
    :: works(sm) ->
       atomic {
#ifdef FUSED
         for (from : 0 .. SMS - 1) {
           if
           :: step > 0 && works(from) ->
              ordered = (known[AGENT(sm, c, OTHERS)] & APPEND(from, step + 1)) != 0;   /* the parity of the step before */
              assert(ordered)
           :: else
           fi
         }
         from = 0;
         if :: c == 0 -> happen(AGENT(sm, c, OTHERS), APPEND(sm, step)) :: else fi;
#endif
         learn(AGENT(sm, c, LANE_0), AGENT(sm, c, OTHERS));   /* the warp synchronises before it hands its sums over */
         parts[sm * CONSUMERS + c]++;
         learn(AGENT(sm, STORER, LANE_0), AGENT(sm, c, LANE_0))
       }
    :: else
    fi
  }
}

#define publish(i)                                                                                    \
  d_step {                                                                                            \
    tag[PACKET(step % ARGMAX_BUFFERS, sm, i)] = step + 1;                                             \
    entry[PACKET(step % ARGMAX_BUFFERS, sm, i)] = step + 1;                                           \
    known[RELEASED(PACKET(step % ARGMAX_BUFFERS, sm, i))] = released                                  \
  }

proctype storer(byte sm) {
  byte step, c;
  int released;
  bit ready_parity = READY_PARITY;
  for (step : 0 .. STEPS - 1) {
    take_token(STORER);
    if
    :: works(sm) ->
       for (c : 0 .. CONSUMERS - 1) { parts[sm * CONSUMERS + c] > step };
       c = 0
    :: else
    fi;
    /* The fence. A packet stored behind it releases what lane 0 knows here; events later than this cannot be in it. */
    atomic {
#if defined(FUSED) && !defined(NO_RELEASE)
      released = known[AGENT(sm, STORER, LANE_0)];
#endif
      publish(0)
    };
    atomic {
#if defined(FUSED) && !defined(NO_RELEASE)
      released = known[AGENT(sm, STORER, LANE_0)];
#endif
      publish(1);
      released = 0
    }
  }
}

inline poll(packet, lanes) {
  d_step {
    tag[packet] == step + 1 ->
    right_value = entry[packet] == step + 1;
    assert(right_value);
    learn(SEEN(sm, lanes), RELEASED(packet))
  }
}

#ifdef RELAXED_READY
#define let_go() arrive_relaxed(READY(sm))
#else
#define let_go() arrive(READY(sm), AGENT(sm, LAUNCHER, LANE_0))
#endif

proctype launcher(byte sm) {
  byte step, from;
  bit taken_parity = TAKEN_PARITY;
  for (step : 0 .. STEPS - 1) {
#ifndef NO_TAKEN_WAIT
    await(TAKEN(sm), LAUNCHER, taken_parity, AGENT(sm, LAUNCHER, LANE_0));
    taken_parity = 1 - taken_parity;
#endif
#ifdef EARLY_READY
    let_go();
#endif
    atomic {
      write(AGENT(sm, LAUNCHER, LANE_0), WORD_WRITE(sm), WORD_READS(sm));
      word[sm] = step + 1;
#ifndef EARLY_READY
      let_go()
#endif
    }
    for (from : 0 .. SMS - 1) {
#ifdef SOME_ENTRIES
      if :: from != sm -> goto next :: else fi;
#endif
      poll(PACKET(step % ARGMAX_BUFFERS, from, 0), from % 2);
#ifdef ONE_TAG
      d_step { right_value = entry[PACKET(step % ARGMAX_BUFFERS, from, 1)] == step + 1; assert(right_value) };
#else
      poll(PACKET(step % ARGMAX_BUFFERS, from, 1), from % 2);
#endif
#ifdef SOME_ENTRIES
next:
#endif
      skip
    }
    atomic {
      from = 0;
#if defined(FUSED) && !defined(NO_ACQUIRE)
      learn(AGENT(sm, LAUNCHER, LANE_0), SEEN(sm, LANE_0));
      learn(AGENT(sm, LAUNCHER, OTHERS), SEEN(sm, OTHERS));
#ifndef NO_LAUNCHER_SYNCWARP
      learn(AGENT(sm, LAUNCHER, LANE_0), AGENT(sm, LAUNCHER, OTHERS))
#endif
#endif
    }
  }
}

init {
  byte i, w;
  atomic {
    init_agents();
    for (i : 0 .. PACKETS - 1) { known[RELEASED(i)] = 0 };
    for (i : 0 .. 2 * SMS - 1) { known[SEEN(0, 0) + i] = 0 };
    for (i : 0 .. SMS - 1) {
      init_barrier(READY(i), 1);
      init_barrier(TAKEN(i), TAKEN_ARRIVALS);
      waits(TAKEN(i), LAUNCHER, 0);
      for (w : 0 .. CONSUMERS) { waits(READY(i), w, 1) };
      for (w : 0 .. CONSUMERS - 1) { run consumer(i, w) };
      run storer(i);
      run launcher(i)
    }
  }
}
