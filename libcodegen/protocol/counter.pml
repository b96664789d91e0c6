/* Counter edges: exchange.cuh (publish_pair, publish_done, counter_target, control_edge) and consumer.cuh (await_inputs); with
   BARRIER, grid_barrier.pml, those where all of the grid arrives.

   Values are plain: a storer writes them and adds to the edge's counter with release; each SM's controller polls the counter with
   acquire until it reaches the phase's target and lets its consumers go through an mbarrier, inputs_ready. A layer has two stages and so
   two edges, as in tagged.pml; the bit masks STAGE_0, STAGE_1, HEAD say which SMs have tiles. Counters only grow.

   Abstracted: one tile and one value for each SM and stage; consumers of an SM alike but for who they are; partials.pml's buffers are
   counters that hand over what both sides know; token.pml's hand-over is a count of finished steps that carries no knowledge.
   Values are relaxed accesses, so that overwriting one needs no happens-before, only that its readers have it: asserted through
   what they read. Reading one needs the write to have been acquired: asserted besides turns.

   sizes: -DSMS=2 -DCONSUMERS=1 -DLAYERS=2 -DSTEPS=2 -DSTAGE_0=3 -DSTAGE_1=3 -DHEAD=3
   sizes: -DSMS=2 -DCONSUMERS=2 -DLAYERS=2 -DSTEPS=1 -DSTAGE_0=3 -DSTAGE_1=1 -DHEAD=2
   sizes: -DSMS=3 -DCONSUMERS=1 -DLAYERS=2 -DSTEPS=1 -DSTAGE_0=3 -DSTAGE_1=5 -DHEAD=2
   nightly: -DSMS=2 -DCONSUMERS=2 -DLAYERS=3 -DSTEPS=2 -DSTAGE_0=3 -DSTAGE_1=3 -DHEAD=3
   nightly: -DSMS=3 -DCONSUMERS=1 -DLAYERS=2 -DSTEPS=2 -DSTAGE_0=7 -DSTAGE_1=3 -DHEAD=6
   defect: -DRELAXED_ADD              the add to the counter releases nothing
   defect: -DRELAXED_POLL             the poll acquires nothing
   defect: -DTARGET_OFF=-1            the target is one arrival short
   defect: -DTARGET_OFF=1             ... one too many
   defect: -DTARGET_LAYER=0           ... the same in every layer
   defect: -DTARGET_STEP=0            ... the same in every step
   defect: -DEARLY_ADD                the add comes before the values
   defect: -DNO_SYNCWARP              ... before those of the other lanes
   defect: -DNO_INPUTS_WAIT           consumers do not wait for their controller
   defect: -DINPUTS_PARITY=1          ... or for the wrong parity
   defect: -DNO_INPUTS_FLIP           ... or for the same parity each time
   defect: -DRELAXED_HAND_OVER        the controller's arrival orders nothing
   defect: -DREADS_ALWAYS -DSTAGE_1=1 a controller lets consumers go that have no work
   defect: -DDROP_ADD                 one SM's add is missing
   defect: -DDOUBLE_ADD               one SM adds twice */

#ifndef TARGET_OFF
#define TARGET_OFF 0
#endif
#ifndef TARGET_LAYER
#define TARGET_LAYER 1
#endif
#ifndef TARGET_STEP
#define TARGET_STEP 1
#endif
#ifndef INPUTS_PARITY
#define INPUTS_PARITY 0
#endif

#define works(mask, sm) (((mask) >> (sm)) & 1)
#ifdef BARRIER
#define ARRIVALS(mask) SMS
#define IS_BARRIER true
#else
#define ARRIVALS(mask) (((mask) & 1) + (((mask) >> 1) & 1) + (((mask) >> 2) & 1))
#define IS_BARRIER false
#endif
#define TURN(s, l) ((s) * LAYERS + (l) + 1)
#define TARGET(s, l, mask) (((s) * TARGET_STEP * LAYERS + (l) * TARGET_LAYER + 1) * ARRIVALS(mask) + TARGET_OFF)

/* Agents: consumers, lane 0 of the storer and its other lanes, and the controller of each SM, and the counters. */
#define SM_AGENTS (CONSUMERS + 3)
#define CONSUMER(sm, c) ((sm) * SM_AGENTS + (c))
#define STORER(sm) ((sm) * SM_AGENTS + CONSUMERS)
#define OTHERS(sm) ((sm) * SM_AGENTS + CONSUMERS + 1)
#define CONTROLLER(sm) ((sm) * SM_AGENTS + CONSUMERS + 2)
#define COUNTER(edge) (SMS * SM_AGENTS + (edge))
#define AGENTS (SMS * SM_AGENTS + 2)
#define INPUTS_READY(sm) (sm)
#define BARRIERS SMS
#define WAITERS CONSUMERS

#include "synchronisation.h"

#define WRITE(edge, sm) (1 << ((edge) * SMS + (sm)))

byte value[2 * SMS], counter[2];
byte parts[SMS * CONSUMERS], taken[SMS];   /* tiles handed to the storer, and finished by it */
byte finished[SMS], token[SMS];            /* steps */
hidden byte right_value;

inline learn(agent, from) { known[agent] = known[agent] | known[from] }

inline add(edge, agent) {
  d_step {
    counter[edge]++;
#ifndef RELAXED_ADD
    learn(COUNTER(edge), agent)
#endif
  }
}

inline read_values(edge, mask, from_layer) {
  for (from : 0 .. SMS - 1) {
    if
    :: works(mask, from) ->
       d_step {
         ordered = (known[CONSUMER(sm, c)] & WRITE(edge, from)) != 0;
         assert(ordered);
         right_value = value[edge * SMS + from] == TURN(step, from_layer);
         assert(right_value)
       }
    :: else
    fi
  }
  from = 0
}

inline receive(edge, mask, from_layer) {
#ifndef NO_INPUTS_WAIT
  await(INPUTS_READY(sm), c, inputs_parity, CONSUMER(sm, c));
#ifndef NO_INPUTS_FLIP
  inputs_parity = 1 - inputs_parity;
#endif
#endif
  read_values(edge, mask, from_layer)
}

#define hand_over() \
  d_step { parts[sm * CONSUMERS + c] - taken[sm] < 2 -> parts[sm * CONSUMERS + c]++; learn(STORER(sm), CONSUMER(sm, c)) }

proctype consumer(byte sm; byte c) {
  byte step, layer, from;
  bit inputs_parity = INPUTS_PARITY;
  for (step : 0 .. STEPS - 1) {
    token[sm] > step;
    for (layer : 0 .. LAYERS - 1) {
      if
      :: works(STAGE_0, sm) ->
         if :: layer > 0 -> receive(1, STAGE_1, layer - 1) :: else fi;   /* the first layer's input is the token's row */
         hand_over()
      :: else
      fi;
      if :: works(STAGE_1, sm) -> receive(0, STAGE_0, layer); hand_over() :: else fi
    }
    if :: works(HEAD, sm) -> receive(1, STAGE_1, LAYERS - 1); hand_over() :: else fi
  }
}

inline finish_tile() {
  for (c : 0 .. CONSUMERS - 1) { parts[sm * CONSUMERS + c] > taken[sm] }
  c = 0;
  d_step { taken[sm]++; learn(OTHERS(sm), STORER(sm)) }
}

inline publish(edge) {
#ifdef EARLY_ADD
  add(edge, STORER(sm));
#endif
  d_step { value[edge * SMS + sm] = TURN(step, layer); happen(OTHERS(sm), WRITE(edge, sm)) };   /* other lanes than lane 0 */
#ifndef NO_SYNCWARP
  learn(STORER(sm), OTHERS(sm));
#endif
#ifdef DROP_ADD
  if :: sm == 1 && layer == 0 && edge == 0 :: else -> add(edge, STORER(sm)) fi;
#else
#ifdef DOUBLE_ADD
  if :: sm == 1 && layer == 0 && edge == 0 -> add(edge, STORER(sm)) :: else fi;
#endif
#ifndef EARLY_ADD
  add(edge, STORER(sm))
#endif
#endif
}

proctype storer(byte sm) {
  byte step, layer, c;
  for (step : 0 .. STEPS - 1) {
    token[sm] > step;
    for (layer : 0 .. LAYERS - 1) {
      if
      :: works(STAGE_0, sm) -> finish_tile(); publish(0)
#ifdef IDLE_STORER_ARRIVES
      :: else -> add(0, STORER(sm))
#else
      :: else
#endif
      fi;
      if
      :: works(STAGE_1, sm) -> finish_tile(); publish(1)
#ifdef IDLE_STORER_ARRIVES
      :: else -> add(1, STORER(sm))
#else
      :: else
#endif
      fi
    }
    if :: works(HEAD, sm) -> finish_tile() :: else fi;
    finished[sm] = step + 1
  }
}

#if defined(IDLE_STORER_ARRIVES) || defined(NO_IDLE_ARRIVAL)
#define idle_arrives false
#else
#define idle_arrives IS_BARRIER
#endif
#ifdef IDLE_RUNS_AHEAD
#define waits_always false
#else
#define waits_always IS_BARRIER
#endif
#ifdef READS_ALWAYS
#define lets_go true
#else
#define lets_go reads
#endif

inline control_edge(edge, mask, readers, from_layer) {
  reads = works(readers, sm);
  if :: idle_arrives && !works(mask, sm) -> add(edge, CONTROLLER(sm)) :: else fi;
  if
  :: reads || waits_always || lets_go ->
     d_step {
       counter[edge] >= TARGET(step, from_layer, mask) ->
#ifndef RELAXED_POLL
       learn(CONTROLLER(sm), COUNTER(edge))
#endif
     }
     if
     :: lets_go ->
#ifdef RELAXED_HAND_OVER
        arrive_relaxed(INPUTS_READY(sm))
#else
        arrive(INPUTS_READY(sm), CONTROLLER(sm))
#endif
     :: else
     fi
  :: else
  fi;
  reads = 0
}

/* Controller and launcher are one warp (run_control). */
proctype control(byte sm) {
  byte step, layer, from;
  bit reads;
  for (step : 0 .. STEPS - 1) {
    token[sm] = step + 1;
    for (layer : 0 .. LAYERS - 1) {
      if :: layer > 0 -> control_edge(1, STAGE_1, STAGE_0, layer - 1) :: else fi;
      control_edge(0, STAGE_0, STAGE_1, layer)
    }
    control_edge(1, STAGE_1, HEAD, LAYERS - 1);
    for (from : 0 .. SMS - 1) { finished[from] > step };
    from = 0
  }
}

init {
  byte i, w;
  atomic {
    init_agents();
    for (i : 0 .. SMS - 1) {
      init_barrier(INPUTS_READY(i), 1);
      for (w : 0 .. CONSUMERS - 1) {
        waits(INPUTS_READY(i), w, 1);
        run consumer(i, w)
      }
      run storer(i);
      run control(i)
    }
  }
}
