// Candidates made ready ahead of the GPU: validated, written as source, compiled, by a few threads with a worker each.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "adamk/base/result.h"
#include "adamk/dag/schedule.h"
#include "adamk/search/evaluator.h"
#include "worker_process.h"
#include "worker_protocol.h"

namespace adamk {

struct PreparedCandidate {
  Status status = Status::ok;      // rejected, compile_error, timeout, crashed, or ok
  std::string message;
  std::string certificate;         // hash of the validator's verdict
  CompiledCandidate compiled;
  std::optional<Error> fatal;      // no candidate can be compiled (no NVRTC)
};

class CompilePool {
 public:
  struct Options {
    std::vector<std::string> command;   // of a worker
    bool isolate = true;
    bool ptx = false;                   // for the emulator, instead of machine code
    int workers = 1;
    double deadline_seconds = 180;
    std::filesystem::path folder;       // for sources, and folders the workers write images to
  };

  /// Begins at once, in order, never more than a few candidates ahead of what was taken. `deployment` and `schedules` must
  /// outlive the pool.
  CompilePool(Options options, const Deployment& deployment, const std::vector<const Schedule*>& schedules);
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;
  ~CompilePool();   // stops, killing what is still compiling

  /// Waits for candidate `i`; each is taken once, in order. nullopt when `stop` returned true.
  std::optional<PreparedCandidate> take(std::size_t i, const std::function<bool()>& stop);

 private:
  void work(std::size_t thread);
  std::optional<std::size_t> next();
  /// A worker that is started when there is none, and the one folder it can write to.
  struct Compiler {
    std::string folder;
    std::optional<WorkerProcess> worker;
  };
  PreparedCandidate prepare(std::size_t i, Compiler& compiler);
  PreparedCandidate compile(std::size_t i, const std::string& source_file, Compiler& compiler);

  Options options_;
  const Deployment& deployment_;
  std::vector<const Schedule*> schedules_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::optional<PreparedCandidate>> done_;
  std::size_t started_ = 0, taken_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace adamk
