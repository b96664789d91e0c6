// What the generator knows of its kernels that their PTX does not say, for the instruction DAG and the emulator.
#pragma once

#include "adamk/dag/schedule.h"
#include "adamk/ptx/instruction_dag.h"

namespace adamk {

/// The function in device/primitives.cuh that a wait asks whether to give up; part of its name in the PTX.
inline constexpr const char* kernel_watchdog = "give_up";

KernelFacts kernel_facts(const Schedule& schedule);

}  // namespace adamk
