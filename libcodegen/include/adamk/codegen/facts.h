// What the generator knows of its kernels that their PTX does not say, for the instruction DAG.
#pragma once

#include "adamk/dag/schedule.h"
#include "adamk/ptx/instruction_dag.h"

namespace adamk {

KernelFacts kernel_facts(const Schedule& schedule);

}  // namespace adamk
