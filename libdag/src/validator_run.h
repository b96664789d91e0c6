// Runs a TileDag's protocol once, every wait as soon as it can pass, and decides from the clocks of that one run for all others.
//
// Every wait names the arrivals, adds or packets it needs, so nothing that a run does can keep another operation from becoming
// possible, unless a turn, a phase or a packet is overtaken. So: a run that stops is a deadlock in every schedule; one that ends is free
// of it in every schedule, provided that nothing can be overtaken, and that is what `order` proves. docs/trust.md has the argument.
#pragma once

#include <string>

#include "validator_checks.h"

namespace adamk::validation {

struct RunResult {
  Counterexample deadlock;   // a wait that never ends, or a turn, phase or packet that can be overtaken
  Counterexample race;       // a read that may find something else than what it must
  std::int64_t operations = 0;
  int layers = 0, steps = 0;
};

/// `subject` must have passed the checks before, so that every region has the writer it needs.
RunResult run_protocol(const Subject& subject);

}  // namespace adamk::validation
