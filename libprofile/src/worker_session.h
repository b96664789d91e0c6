// What a worker process does when asked: compile a source, or run candidates on the GPU it owns.
#pragma once

#include <memory>
#include <string>

#include "adamk/base/json.h"
#include "adamk/base/result.h"

namespace adamk {

class WorkerSession {
 public:
  /// `isolation`: what this process has given up (isolate_worker), for whoever asks.
  explicit WorkerSession(std::string isolation);
  ~WorkerSession();
  /// Requests, by "do":
  ///   compile    source_file, arch, image_file           -> CompiledCandidate
  ///   device     device, or emulation                    -> {identity, method, isolation}
  ///   open       deployment, weights, seed               -> {}
  ///   reference  positions                               -> {}
  ///   load       plan, compiled                          -> {}
  ///   verify                                             -> {passed, message, verdict}
  ///   time       timing                                  -> TimedCandidate
  ///   health                                             -> {}      fails when the GPU context is no longer usable
  ///   emulation                                          -> Evaluation::counters of the candidate loaded last
  Result<Json> answer(const Json& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Serves the channel until the parent closes it. Without `isolation` every request is answered by its error.
int serve_worker(int channel, const Result<std::string>& isolation);

}  // namespace adamk
