// A few threads that wait for the next piece of a decode step: starting them anew for each of some hundred products per token
// would cost more than the products.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace adamk {

class WorkerPool {
 public:
  /// `threads` counts the caller, which works too; 0: one per core.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Cuts [0, count) into one contiguous range per thread and calls body(first, last) on each; returns when all are done.
  /// Small counts run on the caller alone. `body` must not throw.
  void for_ranges(std::int64_t count, std::int64_t smallest_range,
                  const std::function<void(std::int64_t, std::int64_t)>& body);

 private:
  struct Job {
    const std::function<void(std::int64_t, std::int64_t)>* body = nullptr;
    std::int64_t count = 0;
    int parts = 0;
  };
  void work(int index);
  static void run_part(const Job& job, int part);

  std::mutex mutex_;
  std::condition_variable started_, finished_;
  Job job_;
  std::uint64_t generation_ = 0;
  int running_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> workers_;
};

}  // namespace adamk
