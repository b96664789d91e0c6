// Kernels with one thing wrong: the PTX of a real kernel, edited at one place by pattern.
#pragma once

#include <string>
#include <vector>

namespace adamk::emulated {

struct Defect {
  int line = 0;               // of the PTX as it was
  std::string instruction;    // as it was
  std::string ptx;            // with the defect
};

/// What can be made wrong, in the order of the tables.
const std::vector<std::string>& defect_kinds();

/// A kind that is none of those: stops the kernel where a site is reached. Of one that never stops it, no defect can show.
inline const std::string unreached = "stopped";

/// Every place in `ptx` where this can be made wrong, in the order of the text. Fails the test for an unknown kind.
std::vector<Defect> defects_of(const std::string& ptx, const std::string& kind);

}  // namespace adamk::emulated
