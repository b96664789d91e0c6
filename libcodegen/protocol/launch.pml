/* The hand-over between launches: tags and counters go on from the epoch in the launch parameters, the workspace is zeroed once
   and then kept: exchange.cuh (layer_tag, counter_target), storer.cuh (argmax_entry), kernel_params.h (epoch), decoder.cpp.

   LAUNCHES launches decode STEPS steps of LAYERS layers each. A layer has a tagged edge and a counter edge, a step ends with the
   argmax entries. Tags and counters are WORD bits wide and wrap; the first launch has epoch FIRST_EPOCH, and the workspace is
   what the launches before it left: zero when there were none.

   Abstracted: an SM is one process that publishes and then reads; the order within an SM is the other models' subject. A
   launch begins when every SM has ended the one before, which orders all. A value is the turn it belongs to, counted over
   all launches. Asserted: every value is that of the reader's turn, and counter values have been acquired.

   sizes: -DSMS=2 -DLAUNCHES=3 -DSTEPS=2 -DLAYERS=2 -DWORD=8 -DFIRST_EPOCH=0
   sizes: -DSMS=2 -DLAUNCHES=2 -DSTEPS=2 -DLAYERS=1 -DWORD=4 -DFIRST_EPOCH=6
   sizes: -DSMS=3 -DLAUNCHES=2 -DSTEPS=1 -DLAYERS=2 -DWORD=8 -DFIRST_EPOCH=0
   nightly: -DSMS=3 -DLAUNCHES=3 -DSTEPS=2 -DLAYERS=2 -DWORD=8 -DFIRST_EPOCH=0
   nightly: -DSMS=3 -DLAUNCHES=2 -DSTEPS=3 -DLAYERS=2 -DWORD=5 -DFIRST_EPOCH=8
   defect: -DEPOCH_STEP=0                          the epoch does not advance
   defect: -DEPOCH_STEP=1                          it counts launches, not steps
   defect: -DTAG_EPOCH=0                           tags do not know the epoch
   defect: -DTARGET_EPOCH=0                        counter targets do not
   defect: -DTAG_FROM=0                            the first tag is what a fresh workspace holds
   defect: -DZEROED                                counters are zeroed between launches
   defect: -DWORD=4 -DFIRST_EPOCH=3 -DPLAIN_COMPARE  counters compared without regard to wrapping
   defect: -DARGMAX_EPOCH_TAG=0                    argmax entries tagged by step only */

#ifndef EPOCH_STEP
#define EPOCH_STEP STEPS
#endif
#ifndef TAG_EPOCH
#define TAG_EPOCH 1
#endif
#ifndef TARGET_EPOCH
#define TARGET_EPOCH 1
#endif
#ifndef TAG_FROM
#define TAG_FROM 1
#endif
#ifndef ARGMAX_EPOCH_TAG
#define ARGMAX_EPOCH_TAG TAG_EPOCH
#endif

#define COUNTER SMS             /* agents: the SMs and the counter */
#define AGENTS (SMS + 1)
#define BARRIERS 1
#define WAITERS 1

#include "synchronisation.h"

#define MASK ((1 << WORD) - 1)
#define EPOCH(launch) (FIRST_EPOCH + (launch) * EPOCH_STEP)
#define TAG_AT(epoch, step, layer) ((((epoch) + (step)) * (LAYERS + 1) + (layer) + TAG_FROM) & MASK)
#define TAG(launch, step, layer) TAG_AT(EPOCH(launch) * TAG_EPOCH, step, layer)
#define ARGMAX_TAG(launch, step) TAG_AT(EPOCH(launch) * ARGMAX_EPOCH_TAG, step, LAYERS)
#define TARGET(launch, step, layer) \
  ((((EPOCH(launch) * TARGET_EPOCH + (step)) * LAYERS + (layer) + 1) * SMS) & MASK)
#define TURN(launch, step, layer) (((launch) * STEPS + (step)) * (LAYERS + 1) + (layer) + 1)
#define ENTRY(epoch, step, sm) ((((epoch) + (step)) % 2) * SMS + (sm))
#ifdef PLAIN_COMPARE
#define reached(seen, target) (seen >= target)
#else
#define reached(seen, target) (((seen - target) & MASK) < (1 << (WORD - 1)))
#endif
#define WRITE(sm) (1 << (sm))

byte tag[SMS], value[SMS];                     /* the tagged edge */
byte plain[SMS], counter;                      /* the counter edge */
byte entry_tag[2 * SMS], entry[2 * SMS];       /* the argmax entries */
byte ended;                                    /* SMs that have ended a launch, over all launches */
hidden byte right_value;

inline expect(what, layer_) {
  right_value = what == TURN(launch, step, layer_);
  assert(right_value)
}

proctype sm_(byte sm) {
  byte launch, step, layer, from;
  for (launch : 0 .. LAUNCHES - 1) {
    atomic {
      ended >= launch * SMS;
      known[sm] = EVERYTHING
#ifdef ZEROED
      ;
      if :: ended == launch * SMS && sm == 0 -> counter = 0 :: else fi
#endif
    }
    for (step : 0 .. STEPS - 1) {
      for (layer : 0 .. LAYERS - 1) {
        d_step { tag[sm] = TAG(launch, step, layer); value[sm] = TURN(launch, step, layer) };
        for (from : 0 .. SMS - 1) {
          d_step { tag[from] == TAG(launch, step, layer) -> expect(value[from], layer) }
        }
        from = 0;
        d_step { plain[sm] = TURN(launch, step, layer); happen(sm, WRITE(sm)) };
        d_step { counter = (counter + 1) & MASK; known[COUNTER] = known[COUNTER] | known[sm] };
        d_step { reached(counter, TARGET(launch, step, layer)) -> known[sm] = known[sm] | known[COUNTER] };
        for (from : 0 .. SMS - 1) {
          d_step {
            ordered = (known[sm] & WRITE(from)) != 0;
            assert(ordered);
            expect(plain[from], layer)
          }
        }
        from = 0
      }
      layer = 0;
      d_step {
        entry_tag[ENTRY(EPOCH(launch), step, sm)] = ARGMAX_TAG(launch, step);
        entry[ENTRY(EPOCH(launch), step, sm)] = TURN(launch, step, LAYERS)
      };
      for (from : 0 .. SMS - 1) {
        d_step {
          entry_tag[ENTRY(EPOCH(launch), step, from)] == ARGMAX_TAG(launch, step) ->
          expect(entry[ENTRY(EPOCH(launch), step, from)], LAYERS)
        }
      }
      from = 0
    }
    ended++
  }
}

init {
  byte i;
  atomic {
    init_agents();
    known[COUNTER] = 0;
    counter = (FIRST_EPOCH * LAYERS * SMS) & MASK;
    for (i : 0 .. SMS - 1) {
      if
      :: FIRST_EPOCH > 0 ->
         tag[i] = TAG_AT(FIRST_EPOCH - 1, 0, LAYERS - 1);
         entry_tag[ENTRY(FIRST_EPOCH, 0, i)] = TAG_AT(FIRST_EPOCH - 2, 0, LAYERS);
         entry_tag[ENTRY(FIRST_EPOCH, 1, i)] = TAG_AT(FIRST_EPOCH - 1, 0, LAYERS)
      :: else
      fi;
      run sm_(i)
    }
  }
}
