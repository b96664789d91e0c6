// What a worker gives up before it does anything else, so that a candidate that goes wrong (or a compiler or a driver that one
// upsets) cannot reach beyond the worker's scratch folder (docs/isolation.md).
#pragma once

#include <filesystem>
#include <string>

#include "adamk/base/result.h"

namespace adamk {

/// For good, and for every thread started later; call it while the process has one thread.
///  - Landlock, as far as the kernel's version goes: files are written, made and removed only below `scratch`; of devices only
///    the GPU's may be opened for writing; nothing is executed; no TCP; no signal and no abstract socket leaves the process.
///  - seccomp: no new processes, programs, sockets other than Unix ones, tracing, signals to others, mounts, namespaces or
///    changes of a file's mode, owner or times.
///  - no new privileges, no core file, no file above 4 GiB; TMPDIR and the driver's cache are inside `scratch`.
/// Returns what was applied, in words for a record: "landlock 7, seccomp", or "seccomp; no landlock (Function not
/// implemented)".
/// Fails (io) when there is no such folder.
Result<std::string> isolate_worker(const std::filesystem::path& scratch);

}  // namespace adamk
